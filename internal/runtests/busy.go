package main

import (
	"io"
	"os"
	"os/exec"
	"sync/atomic"
)

// Processes that take processor time away from the tests.

const busyCommand = "stay-busy"

// startBusy starts n processes that each keep a processor busy, until the
// returned function is called or this process ends.
func startBusy(n int) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for range n {
		c := exec.Command(program, busyCommand)
		inSession(c)
		alive, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, func() {
			_ = alive.Close()
			_ = c.Wait()
		})
	}
	return stop, nil
}

// stayBusy takes all of a processor until the parent closes the standard input
// or ends.
func stayBusy() {
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	for !ended.Load() {
	}
	os.Exit(0)
}
