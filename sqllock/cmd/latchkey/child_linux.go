package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/internal/bound"
)

// A child is the command and its guard, as latchkey run sees them. The command
// has a process group of its own, so that its children can be ended with it, and
// not this program.
//
// Invariant: the guard reaps the command only after end. Until then the system
// keeps the number of its process group, and a signal reaches no other process.
type child struct {
	notices  chan notice // of the guard; closed when it has ended
	guard    *exec.Cmd
	socket   int
	orders   orders
	unheard  int  // orders since the last notice
	pid      int  // of the command, and the number of its process group
	terminal bool // a person uses this program at a terminal, now or after fg
}

// startChild starts the guard, which starts the command while the lock is held.
// The guard gets conns, which are those of openConnections, and startChild closes
// them here. A lock that is a row of a table needs none. The error is errGuard if
// the guard has not started the command within a lease.
func startChild(w *watchedLock, conns []int, args, env []string) (*child, error) {
	var pair [2]int
	path, err := exec.LookPath(args[0])
	if err == nil && len(conns) == 0 && !w.rows {
		err = errors.New("the connection with the lock cannot be passed on to the guard")
	}
	if err == nil {
		pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	// The guard gets its files under their numbers here, because a number such as 3
	// may be that of a file which the caller passes to the command.
	passed := append([]int{pair[1]}, conns...)
	_, err = unix.FcntlInt(uintptr(pair[1]), unix.F_SETFD, 0) // #nosec G115 -- it is inherited
	c := &child{notices: make(chan notice, 1), socket: pair[0], terminal: atTerminal(),
		guard: exec.Command("/proc/self/exe", guardCommand)} //nolint:noctx // end ends it
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
	return c, c.begin(w)
}

// begin waits until the guard has started the command, for at most a lease. After
// an error the guard has ended.
func (c *child) begin(w *watchedLock) error {
	go c.listen()
	c.orders = orders{Sudden: w.sudden, InFront: c.terminal && foreground() == unix.Getpgrp()}
	c.extend(w.killAt())
	frozen := time.AfterFunc(w.lease, func() { _ = c.guard.Process.Kill() })
	first, heard := <-c.notices
	frozen.Stop()
	if heard && first.Of == started {
		c.pid = int(first.Value)
		return nil
	}
	c.end()
	// A command that could not be executed had the terminal for a moment.
	if group := foreground(); c.orders.InFront && syscall.Kill(-group, 0) == syscall.ESRCH {
		giveTerminal(unix.Getpgrp())
	}
	if !heard {
		return errGuard
	}
	return syscall.Errno(first.Value) // #nosec G115
}

// listen receives the notices of the guard until it has ended.
func (c *child) listen() {
	for n := (notice{}); receive(c.socket, &n); {
		c.notices <- n
	}
	close(c.notices)
}

// extend tells the guard that the lease goes on, and reports whether the guard
// responds. One that has not for a lease is frozen.
func (c *child) extend(killAt time.Duration) bool {
	c.orders.KillAt = killAt
	send(c.socket, c.orders)
	c.unheard++
	return c.unheard <= beatsOfLease
}

// end lets the guard reap the command and end. It returns the exit code of the
// command, and false if the guard has ended without it.
func (c *child) end() (code int, known bool) {
	send(c.socket, orders{})
	frozen := time.AfterFunc(bound.Of(time.Second), func() { _ = c.guard.Process.Kill() })
	defer frozen.Stop()
	for n := range c.notices {
		if n.Of != reaped {
			continue
		}
		status := syscall.WaitStatus(n.Value) // #nosec G115
		code, known = status.ExitStatus(), true
		if status.Signaled() {
			code = 128 + int(status.Signal())
		}
	}
	_ = c.guard.Wait()
	_ = unix.Close(c.socket)
	c.takeTerminal()
	return code, known
}

// openConnections returns another descriptor of each connection of the pool, which
// a child process inherits. The pool's are those that this program itself has
// opened: a program keeps no such file when it executes another one.
func openConnections() (conns []int) {
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, file := range files {
		number, _ := strconv.Atoi(filepath.Base(file))
		_, err := unix.Getpeername(number)
		kind, _ := unix.GetsockoptInt(number, unix.SOL_SOCKET, unix.SO_TYPE)
		flags, _ := unix.FcntlInt(uintptr(number), unix.F_GETFD, 0) // #nosec G115
		if err != nil || kind != unix.SOCK_STREAM || flags&unix.FD_CLOEXEC == 0 {
			continue // a file, an attempt to connect, a question for a name, or the caller's
		}
		if conn, err := unix.FcntlInt(uintptr(number), unix.F_DUPFD, 0); err == nil { // #nosec G115
			conns = append(conns, conn)
		}
	}
	return conns
}

// pass gives the command a signal that this program has got. If it is the one to
// stop, this program stops, too. The guard ends the command if that lasts for
// longer than the lease.
func (c *child) pass(s os.Signal) {
	if s == syscall.SIGCONT {
		c.giveTerminal() // after fg, and not bg
	}
	c.signal(s.(syscall.Signal))
	if s == syscall.SIGTSTP {
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
	case c.giveTerminal():
		c.signal(syscall.SIGCONT)
	default:
		c.takeTerminal()
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}

// signal reaches the command and its process group.
func (c *child) signal(s syscall.Signal) { _ = syscall.Kill(-c.pid, s) }
