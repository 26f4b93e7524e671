package main

import (
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Exit codes. They are those of flock(1), which uses <sysexits.h>, where flock
// has the case. While a command runs, the exit code is the command's own, or
// 128 and the number of the signal that has ended it.
const (
	exitFailure    = 1  // another error, or nothing was found
	exitUsage      = 64 // EX_USAGE: the command line is wrong
	exitNoDatabase = 66 // EX_NOINPUT: the database does not respond, as a lock file that cannot be opened
	exitNotRun     = 69 // EX_UNAVAILABLE: the command cannot be executed
	exitSystem     = 71 // EX_OSERR: no process can be started, or the lock table is full
	exitLost       = 75 // EX_TEMPFAIL: the lock was lost, or the guard did not respond
	exitConfig     = 78 // EX_CONFIG: a person must correct the database or its address
)

// An exitError ends the program with a code. A nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit returns an error that ends the program with code, and prints the text.
func exit(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// silent returns an error that ends the program with code, and prints nothing.
func silent(code int) error { return &exitError{code: code} }

// codeOf returns the exit code for an error of any command.
func codeOf(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, sqllock.ErrConfig), errors.Is(err, sqllock.ErrNotExclusive), errors.Is(err, errors.ErrUnsupported):
		return exitConfig
	case errors.Is(err, sqllock.ErrCapacity):
		return exitSystem
	case errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, sqllock.ErrClosed):
		return exitNoDatabase
	}
	return exitFailure
}
