package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

const scriptShell = "/bin/sh"

// A job is the process group of the child. It has the terminal while it runs,
// whenever this program would have it.
type job struct {
	terminal bool // a person uses this program at a terminal, now or after fg
	gate     int  // this end of the socket of the gate
}

// start gives the child a process group of its own, so that its children can
// be ended with it, and not this program. The system kills the child when this
// program ends, however that ends. The system counts the end of the thread that
// starts the child, and such a thread ends only if a goroutine is locked to it.
// This program locks none.
func (j *job) start(c *exec.Cmd) error {
	if c.Err != nil { // there is no such command
		return c.Err
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	j.terminal = atTerminal()
	if j.terminal && foreground() == unix.Getpgrp() {
		c.SysProcAttr.Foreground, c.SysProcAttr.Ctty = true, 0
	}
	ours, theirs, err := throughGate(c)
	if err == nil {
		err = c.Start()
	}
	_ = unix.Close(theirs)
	if err != nil {
		_ = unix.Close(ours)
	}
	j.gate = ours
	return err
}

// atTerminal reports whether a person uses this program at a terminal. No other
// program reads its output, which could want to read the terminal as well.
func atTerminal() bool {
	_, err := unix.IoctlGetInt(1, unix.TIOCGPGRP)
	return err == nil && foreground() != 0
}

// foreground returns the process group that has the terminal, or 0.
func foreground() int {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// awaitExit waits for the end of the child, and leaves it to wait to reap it. It
// notices meanwhile when the terminal stops the child.
func (c *child) awaitExit() {
	defer close(c.exited)
	for {
		var info unix.Siginfo
		options := unix.WEXITED | unix.WNOWAIT
		if c.job.terminal {
			options |= unix.WSTOPPED
		}
		if err := unix.Waitid(unix.P_PID, c.pid(), &info, options, nil); err == unix.EINTR {
			continue
		} else if err != nil {
			return
		}
		if info.Code != cldStopped {
			return
		}
		// The stop stays until it is collected.
		if err := unix.Waitid(unix.P_PID, c.pid(), &info, unix.WSTOPPED|unix.WNOHANG, nil); err == nil {
			select {
			case c.suspended <- struct{}{}:
			default:
			}
		}
	}
}

const cldStopped = 5 // CLD_STOPPED of waitid(2)

// wait reaps the child, which has ended, and returns its exit code.
func (c *child) wait() int {
	_ = c.command.Wait()
	c.takeTerminal()
	return exitCode(c.command.ProcessState)
}

func exitCode(state *os.ProcessState) int {
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func (c *child) pid() int { return c.command.Process.Pid }

// pass gives the child a signal that this program has got. If it is the one to
// stop, this program stops, too. The guard ends the child if that lasts for
// longer than the lease.
func (c *child) pass(s os.Signal) {
	number := s.(syscall.Signal)
	if number == syscall.SIGCONT && c.job.terminal && foreground() == unix.Getpgrp() { // fg, and not bg
		giveTerminal(c.pid())
	}
	c.signal(number)
	if number == syscall.SIGTSTP {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}

// suspendWithIt stops this program, after the terminal has stopped the child.
// The shell then sees a stopped job, and continues it with SIGCONT. If the shell
// has given the terminal to this program meanwhile, the child gets it instead.
func (c *child) suspendWithIt() {
	switch {
	case !c.stopped(): // it was continued since
		return
	case foreground() == unix.Getpgrp():
		giveTerminal(c.pid())
		c.signal(syscall.SIGCONT)
		return
	}
	c.takeTerminal()
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
}

// terminate asks the child and its process group to end. A stopped process
// stays stopped: it would go on without the lock.
func (c *child) terminate() { c.signal(syscall.SIGTERM) }

// kill ends the child and its process group at once, also if they are stopped.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

func (c *child) signal(s syscall.Signal) { _ = syscall.Kill(-c.pid(), s) }

// stopped reports whether a signal has stopped the child.
func (c *child) stopped() bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid()))
	return bytes.Contains(text, []byte(") T ")) // its name comes before, in parentheses
}

// takeTerminal takes the terminal back, if the child has it. That of a child in
// the background belongs to the shell, which would end without it.
func (c *child) takeTerminal() {
	if c.job.terminal && foreground() == c.pid() {
		giveTerminal(unix.Getpgrp())
	}
}

// giveTerminal makes group the one that reads from the terminal. A process in
// the background may do that if it ignores SIGTTOU.
func giveTerminal(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group)
	signal.Reset(syscall.SIGTTOU)
}
