//go:build !unix

package main

import "os"

var (
	endingSignals = []os.Signal{os.Interrupt}
	passedSignals []os.Signal
)

// signalNumber is that of SIGINT, the only signal here.
func signalNumber(os.Signal) int { return 2 }

func isContinue(os.Signal) bool { return false }
