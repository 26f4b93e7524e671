//go:build unix

package main

import (
	"os"
	"syscall"
)

var (
	// endingSignals end this program unless it catches them.
	endingSignals = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

	// passedSignals are passed on to the command as well.
	passedSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT}
)

func signalNumber(s os.Signal) int { return int(s.(syscall.Signal)) }

// isContinue reports whether s ends a stop of this program.
func isContinue(s os.Signal) bool { return s == syscall.SIGCONT }
