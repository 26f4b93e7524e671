//go:build !linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A child is the command. There is no guard on this system, which would end it
// when this program cannot.
type child struct {
	exited    chan struct{} // closed when the command has ended
	suspended chan struct{} // never gets a token
	gone      chan struct{} // never closed

	command *exec.Cmd
	job     job
}

// guardCommand is no argument of this program here.
const guardCommand = ""

func beGuard([]string) int { return exitUsage }

// newChild prepares the command, with the standard files of this process.
func newChild(_ *watchedLock, _ *sockets, args, env []string) (*child, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, err
	}
	c := &child{exited: make(chan struct{}), command: exec.Command(path, args[1:]...)} //nolint:gosec,noctx // this is what the program is for
	c.command.Args[0], c.command.Env = args[0], env
	return c, nil
}

func (c *child) begin(time.Duration) error {
	err := c.start()
	if errors.Is(err, syscall.ENOEXEC) && scriptShell != "" { // a script without "#!"
		script := exec.Command(scriptShell, append([]string{c.command.Path}, c.command.Args[1:]...)...) //nolint:gosec,noctx // the same
		script.Env = c.command.Env
		c.command = script
		err = c.start()
	}
	if err == nil {
		go func() {
			_ = c.command.Wait()
			close(c.exited)
		}()
	}
	return err
}

func (c *child) start() error {
	c.command.Stdin, c.command.Stdout, c.command.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.job.prepare(c.command)
	return c.command.Start()
}

// wait returns the exit code of the command.
func (c *child) wait() int {
	<-c.exited
	return exitCode(c.command.ProcessState)
}

func (*child) extend(time.Duration) {}
func (*child) release()             {}
func (*child) suspendWithIt()       {}

var began = time.Now()

// bootTime is the time since this program has started. Only differences matter.
func bootTime() time.Duration { return time.Since(began) }
