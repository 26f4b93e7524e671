//go:build !unix

package main

import (
	"os"
	"os/exec"
)

const scriptShell = ""

// A job is empty: this system has no process groups that a signal reaches.
type job struct{}

func (j *job) start(c *exec.Cmd) error { return c.Start() }

func (j *job) refused() error { return nil }

// awaitExit waits for the end of the child.
func (c *child) awaitExit() {
	_ = c.command.Wait()
	close(c.exited)
}

// wait returns the exit code of the child, which has ended.
func (c *child) wait() int {
	<-c.exited
	return c.command.ProcessState.ExitCode()
}

// pass does nothing: the console gives Ctrl-C to the child itself.
func (c *child) pass(os.Signal) {}

func (c *child) suspendWithIt() {}

// terminate ends the child at once: this system has no signal that asks for it.
func (c *child) terminate() { c.kill() }

func (c *child) kill() { _ = c.command.Process.Kill() }
