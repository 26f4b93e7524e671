package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A child is the command and its guard, as latchkey run sees them. The command
// has a process group of its own, so that its children can be ended with it, and
// not this program. It has the terminal while it runs, whenever this program
// would have it.
//
// Invariant: the guard reaps the command only after release. Until then the
// system keeps the number of its process group, and a signal reaches no other
// process.
type child struct {
	exited    chan struct{} // closed when the command has ended
	suspended chan struct{} // gets a token when the terminal has stopped the command
	gone      chan struct{} // closed when the guard has ended

	guard    *exec.Cmd
	socket   int
	orders   orders
	pid      int // of the command, and the number of its process group
	status   syscall.WaitStatus
	reaped   bool // status is known
	terminal bool // a person uses this program at a terminal, now or after fg
	release  func()
	unheard  atomic.Int32 // orders since the last notice
}

// startChild starts the guard, which starts the command while the lock is held.
// It gives the guard the connection with the lock. A lock that is a row of a
// table has none that matters. The error is errGuard if the guard has not started
// the command within a lease.
func startChild(w *watchedLock, from *sockets, args, env []string) (*child, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// The guard gets its files under their numbers here, because a number such as 3
	// may be that of a file which the caller passes to the command.
	passed := []int{pair[1]}
	_, err = unix.FcntlInt(uintptr(pair[1]), unix.F_SETFD, 0) // #nosec G115 -- it is inherited
	if !w.rows {
		for _, conn := range from.opened() { // those that are closed have no file
			if fd, err := duplicate(conn); err == nil {
				passed = append(passed, fd)
			}
		}
		if len(passed) == 1 {
			err = errors.New("the connection with the lock cannot be passed on to the guard")
		}
	}
	c := &child{exited: make(chan struct{}), suspended: make(chan struct{}, 1), gone: make(chan struct{}), socket: pair[0],
		guard: exec.Command("/proc/self/exe", guardCommand), terminal: atTerminal()} //nolint:noctx // release ends it
	c.guard.Args[0], c.guard.Env = os.Args[0], env
	for _, fd := range passed {
		c.guard.Args = append(c.guard.Args, strconv.Itoa(fd))
	}
	c.guard.Args = append(append(c.guard.Args, "--", path), args...)
	c.guard.Stdin, c.guard.Stdout, c.guard.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals of a terminal do not reach it
	if err == nil {
		err = c.guard.Start()
	}
	for _, fd := range passed {
		_ = unix.Close(fd)
	}
	if err != nil {
		_ = unix.Close(c.socket)
		return nil, err
	}
	c.orders.sudden = w.sudden
	if c.terminal && foreground() == unix.Getpgrp() {
		c.orders.inFront = 1
	}
	c.extend(w.killAt())
	c.release = sync.OnceFunc(c.end)
	frozen := time.AfterFunc(w.lease, func() { _ = c.guard.Process.Kill() })
	first := notice{notStarted, 0}
	heard := receive(c.socket, &first.of, &first.value)
	frozen.Stop()
	go c.listen()
	switch {
	case !heard:
		err = errGuard
	case first.of == notStarted:
		err = syscall.Errno(first.value) // #nosec G115
	default:
		c.pid = int(first.value)
		return c, nil
	}
	c.release()
	// A command that could not be executed had the terminal for a moment.
	if group := foreground(); c.orders.inFront == 1 && syscall.Kill(-group, 0) == syscall.ESRCH {
		giveTerminal(unix.Getpgrp())
	}
	return nil, err
}

// end lets the guard reap the command and end. It closes c.gone.
func (c *child) end() {
	_ = send(c.socket, 0, 0, 0)
	select {
	case <-c.gone: // it has reported the status
	case <-time.After(time.Second): // it may be frozen
		_ = c.guard.Process.Kill()
		<-c.gone
	}
	_ = c.guard.Wait()
	_ = unix.Close(c.socket)
}

// duplicate returns another descriptor of an open connection, which a child
// process inherits.
func duplicate(conn net.Conn) (fd int, err error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return 0, unix.ENOTSOCK
	}
	c, err := raw.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := c.Control(func(original uintptr) { fd, err = unix.FcntlInt(original, unix.F_DUPFD, 0) })
	return fd, errors.Join(controlErr, err)
}

// listen acts on the notices of the guard until it has ended.
func (c *child) listen() {
	defer close(c.gone)
	for {
		var r notice
		if !receive(c.socket, &r.of, &r.value) {
			return
		}
		c.unheard.Store(0)
		switch r.of {
		case stopped:
			select {
			case c.suspended <- struct{}{}:
			default:
			}
		case ended:
			close(c.exited)
		case reaped:
			c.status, c.reaped = syscall.WaitStatus(r.value), true // #nosec G115
		}
	}
}

// extend tells the guard that the lease goes on, and reports whether the guard
// responds. One that has not for a lease is frozen.
func (c *child) extend(killAt time.Duration) bool {
	_ = send(c.socket, int64(killAt), int64(c.orders.sudden), c.orders.inFront)
	return c.unheard.Add(1) <= beatsOfLease
}

// wait returns the exit code of the command, which has ended. It returns false if
// the guard has ended without it.
func (c *child) wait() (code int, known bool) {
	c.release()
	c.takeTerminal()
	if c.status.Signaled() {
		return 128 + int(c.status.Signal()), c.reaped
	}
	return c.status.ExitStatus(), c.reaped
}

// pass gives the command a signal that this program has got. If it is the one to
// stop, this program stops, too. The guard ends the command if that lasts for
// longer than the lease.
func (c *child) pass(s os.Signal) {
	number := s.(syscall.Signal)
	if number == syscall.SIGCONT && c.terminal && foreground() == unix.Getpgrp() { // fg, and not bg
		giveTerminal(c.pid)
	}
	c.signal(number)
	if number == syscall.SIGTSTP {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}

// suspendWithIt stops this program, after the terminal has stopped the command.
// The shell then sees a stopped job, and continues it with SIGCONT. If the shell
// has given the terminal to this program meanwhile, the command gets it instead.
func (c *child) suspendWithIt() {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.pid))
	switch {
	case !c.terminal, !bytes.Contains(text, []byte(") T ")): // it was continued since
		return
	case foreground() == unix.Getpgrp():
		giveTerminal(c.pid)
		c.signal(syscall.SIGCONT)
		return
	}
	c.takeTerminal()
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
}

// terminate asks the command and its process group to end. A stopped process
// stays stopped: it would go on without the lock.
func (c *child) terminate() { c.signal(syscall.SIGTERM) }

// kill ends the command and its process group at once, also if they are stopped.
// It returns when none of them lives, whatever became of the guard.
func (c *child) kill() { endGroup(c.pid) }

func (c *child) signal(s syscall.Signal) { _ = syscall.Kill(-c.pid, s) }

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
