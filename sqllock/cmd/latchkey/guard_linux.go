package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A guard is a second process of this program, and the parent of the command. It
// sends SIGKILL to the command and its process group when
//
//   - latchkey run has ended, however that was,
//   - the lease has run out, and latchkey run has not ended the command,
//   - the connection with the lock was closed a while ago.
//
// It also has that connection open. So the server frees the lock of a process
// that was killed only after the guard has ended the command. It may have others
// that were about to close when it got them, such as that of an attempt to
// connect. So the lock's counts as closed when all are.
//
// Both ends of a socket connect it with latchkey run: orders arrive there, and
// its end is the end of latchkey run. Its notices go the other way.

// guardCommand is the argument with which the program is a guard. The number of
// its socket follows, those of the lock's connection, "--", and the command.
const guardCommand = "guard"

// orders are what a guard was last told. Both processes read the same clock. The
// first orders let the command begin.
type orders struct {
	killAt  time.Duration // by bootTime: end the command then, unless there are later orders; 0: it has ended, reap it
	sudden  time.Duration // end it so long after the lock's connection was closed
	inFront int64         // 1: the command gets the terminal
}

// A notice is what a guard says of the command.
type notice struct {
	of    int64
	value int64
}

const (
	started    = iota // value: its process id, which is that of its process group
	notStarted        // value: why, as an errno
	stopped           // by the terminal
	ended             // but not reaped
	reaped            // value: the wait status
	responds          // to orders
)

const maxMessage = 24

// send sends numbers to the other process. It does not wait.
func send(socket int, numbers ...int64) error {
	var b []byte
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n)) // #nosec G115 -- receive turns it back
	}
	return unix.Sendmsg(socket, b, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// receive waits for so many numbers. It returns false if the other process has
// ended.
func receive(socket int, numbers ...*int64) bool {
	var b [maxMessage]byte
	for {
		n, err := unix.Read(socket, b[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < 8*len(numbers) {
			return false
		}
		for i, to := range numbers {
			*to = int64(binary.BigEndian.Uint64(b[8*i:])) // #nosec G115
		}
		return true
	}
}

// A guarding is the state of a guard process.
type guarding struct {
	orders  orders
	socket  int
	sockets []unix.PollFd // the first is that of latchkey run, the others those of the lock's database
	closed  bool          // the server has closed the connection with the lock
	command *exec.Cmd     // with a process once it has begun
}

// beGuard is the guard process. It returns its exit code.
func beGuard(args []string) int {
	numbers := slices.Index(args, "--")
	g := &guarding{}
	for i := range max(numbers, 0) {
		fd, err := strconv.Atoi(args[i])
		if kind, kindErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kindErr != nil || i == 0 && kind != unix.SOCK_SEQPACKET {
			numbers = 0
			break
		}
		unix.CloseOnExec(fd)
		events := int16(unix.POLLRDHUP)
		if i == 0 {
			g.socket, events = fd, unix.POLLIN
		}
		g.sockets = append(g.sockets, unix.PollFd{Fd: int32(fd), Events: events}) // #nosec G115
	}
	if numbers < 1 || len(args) < numbers+3 {
		report("%s is for latchkey run alone, which starts it", guardCommand)
		return exitUsage
	}
	// Signals are caught and dropped. The command would inherit that they are
	// ignored.
	for _, s := range append(slices.Concat(endingSignals, passedSignals), syscall.SIGPIPE) {
		if !signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	// The system ends the command with the thread that has started it.
	runtime.LockOSThread()
	g.command = exec.Command(args[numbers+1]) //nolint:gosec,noctx // this is what the program is for
	g.command.Args = args[numbers+2:]
	if why := g.watch(); why != nil && g.command.Process != nil {
		endGroup(g.command.Process.Pid)
		report("the guard has ended the command: %v", why)
	}
	return 0
}

// watch returns why the command must end, or nil if it has ended.
func (g *guarding) watch() error {
	for {
		// A timeout stands still while the system is suspended, so it is short.
		timeout := 500 * time.Millisecond
		if g.orders.killAt > 0 {
			timeout = min(timeout, g.orders.killAt-bootTime())
		}
		if timeout <= 0 {
			return errors.New("the lease has run out, and latchkey did not end it in time")
		}
		if _, err := unix.Poll(g.sockets, int(timeout/time.Millisecond)+1); err != nil && err != unix.EINTR {
			return err
		}
		open := 0
		for i := 1; i < len(g.sockets); i++ {
			s := &g.sockets[i]
			if s.Revents != 0 {
				s.Fd, s.Revents = -1, 0 // poll passes it over
			}
			if s.Fd >= 0 {
				open++
			}
		}
		if open == 0 && len(g.sockets) > 1 && !g.closed {
			g.closed = true
			g.orders.killAt = min(g.orders.killAt, bootTime()+g.orders.sudden)
		}
		switch events := g.sockets[0].Revents; {
		case events&unix.POLLHUP != 0:
			return errors.New("latchkey itself has ended")
		case events&unix.POLLIN != 0:
			var next orders
			if !receive(g.socket, (*int64)(&next.killAt), (*int64)(&next.sudden), &next.inFront) {
				return errors.New("latchkey itself has ended")
			}
			if next.killAt == 0 {
				return g.reap()
			}
			if g.closed { // orders that were sent before the loss was known do not count
				next.killAt = min(next.killAt, g.orders.killAt)
			}
			g.orders = next
			if err := g.begin(); err != nil {
				return err
			}
			_ = send(g.socket, responds, 0)
		}
	}
}

// begin starts the command, unless it has begun. A command whose lock is lost
// does not begin.
func (g *guarding) begin() error {
	switch {
	case g.command.Process != nil:
		return nil
	case g.closed || bootTime() >= g.orders.killAt:
		return errors.New("the lock is lost")
	}
	start := func(c *exec.Cmd) error {
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Foreground: g.orders.inFront == 1}
		return c.Start()
	}
	command := g.command
	err := start(command)
	if errors.Is(err, syscall.ENOEXEC) { // a script without "#!"
		command = exec.Command("/bin/sh", append([]string{g.command.Path}, g.command.Args[1:]...)...) //nolint:gosec,noctx // the same
		err = start(command)
	}
	if err != nil {
		number := syscall.EINVAL
		_ = errors.As(err, &number)
		return send(g.socket, notStarted, int64(number))
	}
	g.command = command
	_ = send(g.socket, started, int64(command.Process.Pid))
	// The guard keeps no file of the command open, and a terminal does not stop it.
	signal.Ignore(syscall.SIGTTOU)
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Dup3(null, 0, 0), unix.Dup3(null, 1, 0)
	}
	go g.awaitExit(command.Process.Pid)
	return nil
}

// awaitExit reports when the terminal stops the command, and when it has ended.
func (g *guarding) awaitExit(pid int) {
	for {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil); err == unix.EINTR {
			continue
		} else if err != nil {
			return
		}
		const cldStopped = 5 // CLD_STOPPED of waitid(2)
		if info.Code != cldStopped {
			_ = send(g.socket, ended, 0)
			return
		}
		// The stop stays until it is collected.
		if err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil); err == nil {
			_ = send(g.socket, stopped, 0)
		}
	}
}

// reap reports the wait status of the command, which has ended.
func (g *guarding) reap() error {
	if g.command.Process != nil {
		_ = g.command.Wait()
		_ = send(g.socket, reaped, int64(g.command.ProcessState.Sys().(syscall.WaitStatus))) // #nosec G115
	}
	return nil
}

// endGroup ends a process group, and waits until none of its processes lives, for
// at most a second.
func endGroup(group int) {
	_ = syscall.Kill(-group, syscall.SIGKILL)
	for deadline := bootTime() + time.Second; lives(group) && bootTime() < deadline; {
		time.Sleep(time.Millisecond)
	}
}

// lives reports whether a process of the group lives. One that has ended stays
// in the table until its parent reaps it, which is never in a container without
// an init.
func lives(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, process := range processes {
		text, _ := os.ReadFile(process) //nolint:gosec // of the system
		// The name comes before, in parentheses. Then come the state, the parent and the group.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return true
		}
	}
	return err != nil || len(processes) == 0 // there is no /proc
}

// bootTime is the time since the system has started, suspends included.
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("latchkey: CLOCK_BOOTTIME: %v", err)) // Linux 2.6.39 has it
	}
	return time.Duration(t.Nano())
}
