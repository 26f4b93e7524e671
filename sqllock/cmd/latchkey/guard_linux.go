package main

import (
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A guard is a second process of this program, which does nothing but wait. It
// sends SIGKILL to the command when
//
//   - this program has ended, however that was,
//   - this program is frozen, and the lease has run out,
//   - the connection with the lock was closed, and this program is frozen.
//
// It also has that connection open. So the server frees the lock of a program
// that was killed only after the guard has ended the command.
//
// The guard knows this program by a socket: orders arrive there, and its end is
// the end of this program.

// ordersFile is the guard's end of the socket.
const ordersFile = 3

// A guarding is the state of a guard process.
//
// Invariant: killAt is that of the last orders, or earlier.
type guarding struct {
	orders  orders
	sockets []unix.PollFd // the first is that of the orders, the others those of the lock
	gate    int           // of the command, until it is open; 0: none
}

// errReleased says that the command has ended, and the guard is not needed.
var errReleased = errors.New("released")

// errNoFile says that the guard has too many files open, or that the system
// does not let it have the one that was sent.
var errNoFile = errors.New("the guard could not receive a file")

// beGuard is the guard process. It returns its exit code.
func beGuard() int {
	if !isPacketSocket(ordersFile) {
		report("%s is for latchkey run alone, which starts it", guardCommand)
		return exitUsage
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	g := &guarding{sockets: []unix.PollFd{{Fd: ordersFile, Events: unix.POLLIN}}}
	why := g.watch()
	if errors.Is(why, errNoFile) { // latchkey sees the end of the guard
		report("%v", why)
		return exitSystem
	}
	if errors.Is(why, errReleased) || g.orders.group == 0 {
		return 0
	}
	if g.kill() {
		report("the guard has ended the command: %v", why)
	}
	return 0
}

// watch returns why the command must end.
func (g *guarding) watch() error {
	killAt := time.Duration(0)
	for {
		// A timeout stands still while the system is suspended, so it is short.
		timeout := 500 * time.Millisecond
		if killAt > 0 {
			timeout = min(timeout, killAt-bootTime())
		}
		if timeout <= 0 {
			return errors.New("the lease has run out, and latchkey did not end it in time")
		}
		g.openGate()
		for i := range g.sockets {
			g.sockets[i].Revents = 0
		}
		if _, err := unix.Poll(g.sockets, int(timeout/time.Millisecond)+1); err != nil && err != unix.EINTR {
			return err
		}
		if g.sockets[0].Revents != 0 {
			if err := g.receive(); err != nil {
				return err
			}
			killAt = g.orders.killAt
		}
		if g.dropClosed() {
			killAt = min(killAt, bootTime()+g.orders.sudden)
			g.orders.killAt = killAt
		}
	}
}

// openGate lets the command begin. The lease has not run out, and the guard
// knows the process group. A command whose lock is lost does not begin.
func (g *guarding) openGate() {
	if g.gate == 0 || g.closed() {
		return
	}
	_ = unix.Sendmsg(g.gate, []byte{1}, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	_ = unix.Close(g.gate)
	g.gate = 0
}

// receive reads the next orders. The first ones come with the sockets of the
// lock, and those that name the process group with its gate.
func (g *guarding) receive() error {
	var b [orderBytes]byte
	control := make([]byte, unix.CmsgSpace(4*maxSockets))
	n, controlBytes, flags, _, err := unix.Recvmsg(ordersFile, b[:], control, unix.MSG_CMSG_CLOEXEC)
	switch {
	case err == unix.EINTR:
		return nil
	case err != nil:
		return err
	case n < orderBytes:
		return errors.New("latchkey itself has ended")
	case flags&unix.MSG_CTRUNC != 0: // the command has not begun
		return errNoFile
	}
	next := decode(b[:])
	if messages, err := unix.ParseSocketControlMessage(control[:controlBytes]); err == nil {
		for _, m := range messages {
			fds, _ := unix.ParseUnixRights(&m)
			for _, fd := range fds {
				if next.group != 0 {
					g.gate = fd
					continue
				}
				g.sockets = append(g.sockets, unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}) // #nosec G115
			}
		}
	}
	if next.killAt == 0 {
		return errReleased
	}
	if g.closed() { // orders that were sent before the loss was known do not count
		next.killAt = min(next.killAt, g.orders.killAt)
	}
	g.orders = next
	return nil
}

// dropClosed reports whether the server has just closed the connection.
func (g *guarding) dropClosed() (closed bool) {
	for i := 1; i < len(g.sockets); i++ {
		if g.sockets[i].Fd >= 0 && g.sockets[i].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0 {
			g.sockets[i].Fd = -1 // poll passes it over
			closed = true
		}
	}
	return closed
}

// closed reports whether the server has closed the connection before.
func (g *guarding) closed() bool {
	for _, s := range g.sockets {
		if s.Fd < 0 {
			return true
		}
	}
	return false
}

// kill ends the process group, and waits until it has gone. It waits for at most
// a second, because a process stays in the table until its parent reaps it. kill
// reports whether there was a group.
func (g *guarding) kill() bool {
	if err := syscall.Kill(-g.orders.group, syscall.SIGKILL); err != nil {
		return false
	}
	for deadline := bootTime() + time.Second; bootTime() < deadline; time.Sleep(time.Millisecond) {
		if syscall.Kill(-g.orders.group, 0) != nil {
			break
		}
	}
	return true
}

// bootTime is the time since the system has started, suspends included.
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("latchkey: CLOCK_BOOTTIME: %v", err)) // Linux 2.6.39 has it
	}
	return time.Duration(t.Nano())
}
