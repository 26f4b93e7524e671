//go:build !linux

package main

import (
	"context"
	"os"
	"syscall"
)

// The guard, which ends the command when this program cannot, needs Linux.

// guardCommand is no argument of this program here.
const guardCommand = ""

func beGuard([]string) int { return exitUsage }

func runUnderLock(context.Context, *database, *runConfig) error {
	return exit(exitConfig, "latchkey run needs Linux: on another system nothing ends the command of a process that was killed")
}

var endingSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
