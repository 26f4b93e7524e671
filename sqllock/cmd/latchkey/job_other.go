//go:build !unix

package main

import (
	"os"
	"os/exec"
)

const scriptShell = ""

// A job is empty: this system has no process groups that a signal reaches.
type job struct{}

func (job) prepare(*exec.Cmd) {}

// pass does nothing: the console gives Ctrl-C to the command itself.
func (c *child) pass(os.Signal) {}

// terminate ends the command at once: this system has no signal that asks for it.
func (c *child) terminate() { c.kill() }

func (c *child) kill() {
	_ = c.command.Process.Kill()
	<-c.exited
}

var (
	endingSignals = []os.Signal{os.Interrupt}
	passedSignals []os.Signal
)

// signalNumber is that of SIGINT, the only signal here.
func signalNumber(os.Signal) int { return 2 }

func isContinue(os.Signal) bool { return false }
