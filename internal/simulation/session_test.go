package simulation

import (
	"net"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A session is a client's connection and the server's session at its end.
//
// Invariant: after aborted is closed, no statement of the session reaches the
// server, and each call in flight returns.
type session struct {
	server  *server
	link    *link
	lease   time.Duration
	aborted chan struct{} // closed when the client has closed the socket
	once    sync.Once

	// protected by server.mu
	blackhole bool          // no message passes any more
	stuck     bool          // Abort has no effect: the driver is stuck
	destroyed bool          // by the client
	busy      time.Duration // it carries out a statement until then
	idle      time.Duration // since when it is silent, by the server's clock
	closing   time.Duration // when the server sees the connection closed; 0: not yet known
	over      bool          // the server has ended it
	killed    time.Duration // when killLocked ended it; 0: it did not
}

// pause waits for d and reports true. If the client closes the socket, it reports
// false at once.
func (s *session) pause(d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.aborted:
		}
	}
	select {
	case <-s.aborted:
		return false
	default:
		return true
	}
}

// travel waits for as long as a message is on its way, which a fault makes
// longer by extra. It reports false if the client closes the socket meanwhile.
func (s *session) travel(extra time.Duration) bool {
	arrival := now() + extra + s.server.latency
	for {
		wait := max(arrival, s.server.cutUntil(s.link)) - now()
		if wait <= 0 {
			return s.pause(0)
		}
		if !s.pause(wait) {
			return false
		}
	}
}

// Socket implements dialect.Session. There is nothing to watch, so heartbeats
// notice a closed connection.
func (s *session) Socket() net.Conn { return nil }

// Abort implements dialect.Session.
func (s *session) Abort() {
	srv := s.server
	srv.mu.Lock()
	stuck := s.stuck
	srv.mu.Unlock()
	if !stuck {
		s.abort()
	}
}

func (s *session) abort() { s.once.Do(func() { close(s.aborted) }) }

// Destroy implements dialect.Session.
func (s *session) Destroy() {
	s.abort()
	srv := s.server
	srv.world.closing(s)
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if s.destroyed {
		return
	}
	s.destroyed = true
	srv.closed++
	if !s.blackhole {
		s.closing = max(now(), s.link.cut)
	}
}

// Token implements dialect.Session.
func (s *session) Token() (token dialect.Token, err error) {
	err = s.roundTrip(func(bool) {
		s.server.tokens++
		token.Number = s.server.tokens
	})
	return token, err
}

// ReservedToken implements dialect.Session. There is none, so each lock asks for
// its token.
func (s *session) ReservedToken() (dialect.Token, bool) { return dialect.Token{}, false }
