package main

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// The command has the terminal while it runs, whenever this program would have it.

// giveTerminal gives the command the terminal, if this program has it.
func (c *child) giveTerminal() bool {
	has := c.terminal && foreground() == unix.Getpgrp()
	if has {
		giveTerminal(c.pid)
	}
	return has
}

// takeTerminal takes the terminal back, if the command has it. That of a command
// in the background belongs to the shell, which would end without it.
func (c *child) takeTerminal() {
	if c.terminal && foreground() == c.pid {
		giveTerminal(unix.Getpgrp())
	}
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

// giveTerminal makes group the one that reads from the terminal. A process in
// the background may do that if it ignores SIGTTOU.
func giveTerminal(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group)
	signal.Reset(syscall.SIGTTOU)
}
