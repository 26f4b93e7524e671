//go:build unix && !linux

package main

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const scriptShell = "/bin/sh"

// A job says whether the command is a process group of its own. At a terminal it
// stays in this program's group, so that it may read, and gets the terminal's
// signals itself.
type job struct{ terminal bool }

func (j *job) prepare(c *exec.Cmd) {
	_, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	j.terminal = err == nil
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: !j.terminal}
}

// pass gives the command a signal that this program has got. Those of a terminal
// the command has got, too.
func (c *child) pass(s os.Signal) {
	switch s {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGWINCH:
		if c.job.terminal {
			break
		}
		fallthrough
	default:
		c.signal(s.(syscall.Signal))
	}
	if s == syscall.SIGTSTP {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}

func (c *child) terminate() { c.signal(syscall.SIGTERM) }

func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.exited
}

func (c *child) signal(s syscall.Signal) {
	if c.job.terminal {
		_ = c.command.Process.Signal(s)
		return
	}
	_ = syscall.Kill(-c.command.Process.Pid, s)
}
