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

// startChild starts the command with the standard files of this process.
func startChild(_ *watchedLock, _ *sockets, args, env []string) (*child, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, err
	}
	c := &child{exited: make(chan struct{})}
	err = c.start(path, args, env)
	if errors.Is(err, syscall.ENOEXEC) && scriptShell != "" { // a script without "#!"
		err = c.start(scriptShell, append([]string{scriptShell, path}, args[1:]...), env)
	}
	if err != nil {
		return nil, err
	}
	go func() {
		_ = c.command.Wait()
		close(c.exited)
	}()
	return c, nil
}

func (c *child) start(path string, args, env []string) error {
	c.command = exec.Command(path) //nolint:gosec,noctx // this is what the program is for
	c.command.Args, c.command.Env = args, env
	c.command.Stdin, c.command.Stdout, c.command.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.job.prepare(c.command)
	return c.command.Start()
}

// wait returns the exit code of the command, which is always known.
func (c *child) wait() (code int, known bool) {
	<-c.exited
	return exitCode(c.command.ProcessState.Sys().(syscall.WaitStatus)), true
}

func (*child) extend(time.Duration) {}
func (*child) release()             {}
func (*child) suspendWithIt()       {}

var began = time.Now()

// bootTime is the time since this program has started. Only differences matter.
func bootTime() time.Duration { return time.Since(began) }
