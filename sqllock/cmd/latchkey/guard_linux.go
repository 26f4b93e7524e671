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

	"github.com/latchkey-go/latchkey/internal/bound"
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
// A socket connects it with latchkey run: orders arrive there, notices go back,
// and its end is the end of latchkey run.

// guardCommand is the argument with which the program is a guard. The number of
// its socket follows, those of the lock's connection, "--", and the command.
const guardCommand = "guard"

// Orders are what a guard was last told. Both processes read the same clock. The
// first orders let the command begin.
type orders struct {
	KillAt  time.Duration // by bootTime: end the command then, unless there are later orders; 0: it has ended, reap it
	Sudden  time.Duration // end it so long after the lock's connection was closed
	InFront bool          // the command gets the terminal
}

// A notice is what a guard says of the command.
type notice struct{ Of, Value int64 }

const (
	started    = iota // Value: its process id, which is that of its process group
	notStarted        // Value: why, as an errno
	stopped           // by the terminal
	ended             // but not reaped
	reaped            // Value: the wait status
	responds          // to orders
)

// send sends orders or a notice to the other process. It does not wait.
func send(socket int, message any) {
	b, err := binary.Append(nil, binary.NativeEndian, message)
	if err == nil { // it has a fixed size
		_ = unix.Sendmsg(socket, b, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	}
}

// receive waits for a message. It returns false if the other process has ended.
func receive(socket int, message any) bool {
	b := make([]byte, binary.Size(message))
	n, err := unix.Read(socket, b)
	for err == unix.EINTR {
		n, err = unix.Read(socket, b)
	}
	if err != nil || n < len(b) {
		return false
	}
	_, err = binary.Decode(b, binary.NativeEndian, message)
	return err == nil
}

// A guarding is the state of a guard process.
type guarding struct {
	orders  orders
	sockets []unix.PollFd // the first is that of latchkey run, the others those of the lock's database
	closed  bool          // the server has closed the connection with the lock
	command *exec.Cmd     // with a process once it has begun
}

// beGuard is the guard process. It returns its exit code.
func beGuard(args []string) int {
	g := &guarding{}
	split := max(slices.Index(args, "--"), 0)
	for _, number := range args[:split] {
		fd, _ := strconv.Atoi(number)
		unix.CloseOnExec(fd)
		g.sockets = append(g.sockets, unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}) // #nosec G115
	}
	if split == 0 || len(args) < split+3 || !g.isLatchkeys() {
		report("%s is for latchkey run alone, which starts it", guardCommand)
		return exitUsage
	}
	g.sockets[0].Events = unix.POLLIN
	// Signals are caught and dropped. The command would inherit that they are
	// ignored.
	for _, s := range append(slices.Concat(endingSignals, passedSignals), syscall.SIGPIPE) {
		if !signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	// The system ends the command with the thread that has started it.
	runtime.LockOSThread()
	g.command = exec.Command(args[split+1]) //nolint:gosec,noctx // this is what the program is for
	g.command.Args = args[split+2:]
	if why := g.watch(); why != nil && g.command.Process != nil {
		endGroup(g.command.Process.Pid)
		report("the guard has ended the command: %v", why)
	}
	return 0
}

// isLatchkeys reports whether the first socket is one that latchkey run makes.
func (g *guarding) isLatchkeys() bool {
	kind, err := unix.GetsockoptInt(int(g.sockets[0].Fd), unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_SEQPACKET
}

// notify sends a notice to latchkey run.
func (g *guarding) notify(of, value int64) { send(int(g.sockets[0].Fd), notice{of, value}) }

// watch returns why the command must end, or nil if it has ended.
func (g *guarding) watch() error {
	for {
		// A timeout stands still while the system is suspended, so it is short.
		timeout := 500 * time.Millisecond
		if g.orders.KillAt > 0 {
			timeout = min(timeout, g.orders.KillAt-bootTime())
		}
		if timeout <= 0 {
			return errors.New("the lease has run out, and latchkey did not end it in time")
		}
		if _, err := unix.Poll(g.sockets, int(timeout/time.Millisecond)+1); err == unix.EINTR {
			continue
		} else if err != nil {
			return err
		}
		open := 0
		for i := range g.sockets[1:] {
			s := &g.sockets[i+1]
			if s.Revents != 0 {
				s.Fd = -1 // poll passes it over
			}
			if s.Fd >= 0 {
				open++
			}
		}
		if open == 0 && len(g.sockets) > 1 && !g.closed {
			g.closed = true
			g.orders.KillAt = min(g.orders.KillAt, bootTime()+g.orders.Sudden)
		}
		var next orders
		switch events := g.sockets[0].Revents; {
		case events == 0:
			continue
		case events&unix.POLLHUP != 0, !receive(int(g.sockets[0].Fd), &next):
			return errors.New("latchkey itself has ended")
		case next.KillAt == 0:
			g.reap()
			return nil
		}
		if g.closed { // orders that were sent before the loss was known do not count
			next.KillAt = min(next.KillAt, g.orders.KillAt)
		}
		g.orders = next
		if g.command.Process == nil {
			if g.closed || bootTime() >= g.orders.KillAt {
				return errors.New("the lock is lost") // a command does not begin without it
			}
			g.begin()
		}
		g.notify(responds, 0)
	}
}

// begin starts the command.
func (g *guarding) begin() {
	start := func(c *exec.Cmd) error {
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Foreground: g.orders.InFront}
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
		g.notify(notStarted, int64(number))
		return
	}
	g.command = command
	g.notify(started, int64(command.Process.Pid))
	// The guard keeps no file of the command open, and a terminal does not stop it.
	signal.Ignore(syscall.SIGTTOU)
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Dup3(null, 0, 0), unix.Dup3(null, 1, 0)
	}
	go g.awaitExit(command.Process.Pid)
}

// awaitExit reports when the terminal stops the command, and when it has ended.
func (g *guarding) awaitExit(pid int) {
	const cldStopped = 5 // CLD_STOPPED of waitid(2)
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return
		case info.Code != cldStopped:
			g.notify(ended, 0)
			return
		case unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil) == nil: // it stays until it is collected
			g.notify(stopped, 0)
		}
	}
}

// reap reports the wait status of the command, which has ended.
func (g *guarding) reap() {
	if g.command.Process != nil {
		_ = g.command.Wait()
		g.notify(reaped, int64(g.command.ProcessState.Sys().(syscall.WaitStatus))) // #nosec G115
	}
}

// endGroup ends a process group, and waits until none of its processes lives, for
// at most a second.
func endGroup(group int) {
	_ = syscall.Kill(-group, syscall.SIGKILL)
	for deadline := bootTime() + bound.Of(time.Second); lives(group) && bootTime() < deadline; {
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
