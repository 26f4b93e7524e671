package sqllock

import (
	"errors"
	"net"
	"syscall"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// How a fakeSession listens: the release of a key makes the fakeSocket of each
// other session readable that has a mark of its bell. A response takes the
// notifications along, unseen, as that of a driver may.

// withBells makes the fake server of simulate one with notifications.
func withBells(o *options) { o.dialect.(*fakeServer).bells = true }

// CanListen implements dialect.Listener.
func (s *fakeSession) CanListen() bool { return s.server.bells }

// Listen implements dialect.Listener.
func (s *fakeSession) Listen(bells []dialect.Bell) (complete bool, err error) {
	s.mu.Lock()
	before, hook := s.before, s.onListen
	s.listens++
	s.mu.Unlock()
	if before != nil {
		if err := before(); err != nil {
			return false, err
		}
	}
	if hook != nil {
		if complete, err := hook(); err != nil || !complete {
			return false, err
		}
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	marks := make(map[dialect.Bell]bool)
	for _, b := range bells {
		marks[b] = true
	}
	s.server.marks[s] = marks
	s.socket.read()
	return true, nil
}

// ringLocked rings the bell of k for all sessions but the one that releases it.
func (f *fakeServer) ringLocked(k dialect.Key, from *fakeSession) {
	for s, marks := range f.marks {
		if s != from && marks[dialect.BellOf(k)] {
			s.socket.arrive()
		}
	}
}

// release makes the holder of key, another process, release it.
func (f *fakeServer) release(key Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.locks.owners, key.id())
	f.ringLocked(key.id(), nil)
}

// A fakeSocket is the socket of a fakeSession. It is readable while it holds a
// token in notified.
type fakeSocket struct {
	net.Conn // nil: no bytes pass
	notified chan struct{}
	closed   chan struct{}
}

func newFakeSocket(closed chan struct{}) *fakeSocket {
	return &fakeSocket{notified: make(chan struct{}, 1), closed: closed}
}

// arrive makes the socket readable.
func (c *fakeSocket) arrive() {
	select {
	case c.notified <- struct{}{}:
	default:
	}
}

// read takes off what has arrived, as a driver does that reads a response.
func (c *fakeSocket) read() {
	select {
	case <-c.notified:
	default:
	}
}

func (c *fakeSocket) RemoteAddr() net.Addr { return nil }

// SyscallConn implements syscall.Conn.
func (c *fakeSocket) SyscallConn() (syscall.RawConn, error) { return fakeRawConn{c}, nil }

// A fakeRawConn is what a watch waits at.
type fakeRawConn struct{ socket *fakeSocket }

// Read returns once the socket is readable or closed.
func (c fakeRawConn) Read(func(uintptr) bool) error {
	select {
	case <-c.socket.notified:
	case <-c.socket.closed:
	}
	return nil
}

func (fakeRawConn) Control(func(uintptr)) error    { return errors.ErrUnsupported }
func (fakeRawConn) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
