package sqllock

import (
	"net"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A simSession is a client's connection, and the server's session at its end.
type simSession struct {
	server  *simServer
	link    *simLink
	lease   time.Duration
	aborted chan struct{} // closed when the client has closed the socket
	once    sync.Once

	// protected by server.mu
	black     bool                         // nothing gets through any more
	deaf      bool                         // nor does a call in flight return when its socket is closed
	destroyed bool                         // by the client
	busy      time.Duration                // until then it carries out a statement
	idle      time.Duration                // since then it is silent, by the server's clock
	closing   time.Duration                // when the server sees the connection closed; 0: not yet known
	over      bool                         // the server has ended it
	killed    time.Duration                // when, without warning; 0: not so
	secrets   map[dialect.SecretCheck]bool // that it uses
	blocks    bool                         // an exchange that takes locks brings tokens along
	drawn     int64                        // the last of the block that was handed out
	reserved  int64                        // the last of the block
}

// pause waits for d, or less if the client closes the socket: then it reports false.
func (s *simSession) pause(d time.Duration) bool {
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

// travel is a message's way, of which a fault takes extra. It reports false if
// the client has closed the socket before the end.
func (s *simSession) travel(extra time.Duration) bool {
	arrival := simNow() + extra + s.server.latency
	for {
		wait := max(arrival, s.server.cutUntil(s.link)) - simNow()
		if wait <= 0 {
			return s.pause(0)
		}
		if !s.pause(wait) {
			return false
		}
	}
}

// Socket implements dialect.Session: closed connections are noticed by heartbeats.
func (s *simSession) Socket() net.Conn { return nil }

// Abort implements dialect.Session.
func (s *simSession) Abort() {
	f := s.server
	f.mu.Lock()
	deaf := s.deaf
	f.mu.Unlock()
	if !deaf {
		s.abort()
	}
}

func (s *simSession) abort() { s.once.Do(func() { close(s.aborted) }) }

// Destroy implements dialect.Session.
func (s *simSession) Destroy() {
	s.abort()
	f := s.server
	f.world.closing(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.destroyed {
		return
	}
	s.destroyed = true
	f.closed++
	if !s.black {
		s.closing = max(simNow(), s.link.cut)
	}
}
