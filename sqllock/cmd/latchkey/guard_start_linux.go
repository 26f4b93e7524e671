package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSockets bounds the connections that a guard gets. A lock has one.
const maxSockets = 4

// A guard is the guard process, as latchkey run sees it.
type guard struct {
	gone    <-chan struct{} // closed when the guard has ended
	orders  orders
	socket  int // the other end of the guard's ordersFile
	release func()
}

// startGuard starts a guard, which waits for orders. It is in a session of its
// own, where signals of a terminal and those for a process group do not reach
// it. It needs no environment, and gets no address of a database.
func startGuard() (*guard, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "orders") // #nosec G115
	defer theirs.Close()
	c := exec.Command("/proc/self/exe", guardCommand) //nolint:noctx // release ends it
	c.Args[0] = os.Args[0]
	c.Env, c.Dir, c.Stderr = []string{}, "/", os.Stderr
	c.ExtraFiles = []*os.File{theirs}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		_ = unix.Close(pair[0])
		return nil, err
	}
	gone := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(gone)
	}()
	g := &guard{gone: gone, socket: pair[0]}
	g.release = sync.OnceFunc(func() {
		g.send(orders{})
		_ = unix.Close(g.socket)
		defer time.AfterFunc(time.Second, func() { _ = c.Process.Kill() }).Stop() // it may be frozen
		<-gone
	})
	return g, nil
}

// hold gives the guard the connection with the lock. A lock that is a row of a
// table has none that matters. An error says that the guard has no connection:
// the server could then free the lock before the guard has ended the command.
func (g *guard) hold(w *watchedLock, from *sockets) error {
	g.orders.killAt, g.orders.sudden = w.killAt(), w.sudden
	var fds []int
	if !w.rows {
		for _, conn := range from.opened() {
			if fd, err := duplicate(conn); err == nil && len(fds) < maxSockets {
				fds = append(fds, fd)
			}
		}
	}
	if len(fds) == 0 && !w.rows { // other connections of the pool may be closed, but not all
		return errors.New("no connection can be passed on")
	}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	err := unix.Sendmsg(g.socket, g.orders.encode(), unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
	if err == unix.EPIPE || err == unix.ECONNREFUSED { // the guard has ended, and gone says so
		return nil
	}
	return err
}

// duplicate returns another descriptor of an open connection.
func duplicate(conn net.Conn) (fd int, err error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return 0, unix.ENOTSOCK
	}
	c, err := raw.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := c.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	})
	if controlErr != nil { // it was closed
		return 0, controlErr
	}
	return fd, err
}

// protect tells the guard which process group to end, and hands it the gate of
// the command. An error says that the guard does not know the command, which
// then stays behind its gate.
func (g *guard) protect(c *child) error {
	g.orders.group = c.pid()
	return g.sendWith(g.orders, unix.UnixRights(c.job.gate))
}

// extend tells the guard that the lease goes on.
func (g *guard) extend(killAt time.Duration) {
	g.orders.killAt = killAt
	g.send(g.orders)
}

// send does not wait. A guard that is frozen misses orders, and one that has
// ended closes g.gone.
func (g *guard) send(o orders) { _ = g.sendWith(o, nil) }

func (g *guard) sendWith(o orders, rights []byte) error {
	return unix.Sendmsg(g.socket, o.encode(), rights, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}
