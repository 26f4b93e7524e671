package session

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// watchAfter is how long a connection is silent before its socket is watched.
// While there is traffic, that notices a closed connection by itself.
const watchAfter = 20 * time.Millisecond

// A watch notices that something arrives on an idle connection: normally its
// end. It looks without reading (MSG_PEEK), so that the driver finds what there
// is. A nil watch never notices anything.
//
// While it is parked in the socket's poller it holds the socket's read lock. A
// driver that waits for a response gets the lock when the response arrives.
//
// Invariant: while a response is expected, its arrival is not reported.
type watch struct {
	raw      syscall.RawConn
	arming   chan struct{} // a token: look at the socket now
	noticed  chan struct{} // a token: it was readable, and nothing was expected
	armed    atomic.Bool
	expected atomic.Bool // the next thing to arrive is an answer
}

// newWatch starts a watch on socket, or returns nil where that cannot be done.
func newWatch(socket net.Conn) *watch {
	raw := dbconn.RawConn(socket)
	if raw == nil {
		return nil
	}
	w := &watch{raw: raw, arming: make(chan struct{}, 1), noticed: make(chan struct{}, 1)}
	go w.look()
	return w
}

// look waits at the socket whenever the watch is armed.
func (w *watch) look() {
	for range w.arming {
		_ = w.raw.Read(dbconn.Readable) // an error, too, is something to look into
		w.armed.Store(false)
		if w.expected.Swap(false) {
			continue
		}
		select {
		case w.noticed <- struct{}{}:
		default:
		}
	}
}

// arm makes the watch look from now on, if it does not already.
func (w *watch) arm() {
	if w != nil && w.armed.CompareAndSwap(false, true) {
		w.expected.Store(false)
		w.arming <- struct{}{}
	}
}

// expect says that a statement is about to be sent, whose response is no news.
func (w *watch) expect() {
	if w != nil && w.armed.Load() {
		w.expected.Store(true)
	}
}

// answered says that the response has come. What arrives now is news. That
// holds also for a look at the socket that began too late to see the response.
func (w *watch) answered() {
	if w != nil {
		w.expected.Store(false)
	}
}

// readable gets a token when something unexpected has arrived.
func (w *watch) readable() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.noticed
}

// stop ends the watch. The socket must be closed, or be about to.
func (w *watch) stop() {
	if w != nil {
		close(w.arming)
	}
}

// Watching reports whether the socket of each connection is watched now.
func (s *Session) Watching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		if sl.conn == nil || sl.conn.watch == nil || !sl.conn.watch.armed.Load() {
			return false
		}
	}
	return true
}
