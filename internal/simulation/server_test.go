package simulation

import (
	"math"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A server is a database in memory that also does what a server does with
// time: by its own clock, it ends a session that has been silent for the lease.
//
// Time is looked at when somebody comes: what is due by then happens first.
type server struct {
	drift   int64         // how much faster its clock runs, in millionths
	latency time.Duration // of the network, each way
	began   time.Duration
	world   *world

	perSession int // locks on a session before a client opens another

	mu       sync.Mutex // protects what follows, sessions' and links' included
	stepped  time.Duration
	forward  time.Duration // when its clock was last set forward; 0: never
	owners   map[dialect.Key]*session
	freed    map[dialect.Key]time.Duration // when it last had no owner any more
	sessions map[*session]bool             // those that it has not ended
	down     time.Duration                 // until then it refuses connections
	stuck    []*session                    // with a deaf driver, until all has healed
	tokens   int64
	opened   int
	closed   int // by the clients
}

// clockLocked is the server's clock at a time of the clients'.
func (srv *server) clockLocked(at time.Duration) time.Duration {
	return srv.paceLocked(at-srv.began) + srv.stepped
}

// paceLocked is how far the server's clock goes in d.
func (srv *server) paceLocked(d time.Duration) time.Duration {
	return d + d*time.Duration(srv.drift)/1e6
}

// catchUpLocked does what was due by now: ends sessions that have been silent for
// their lease, or whose client has closed the connection.
func (srv *server) catchUpLocked() {
	at := now()
	for s := range srv.sessions {
		if at < s.busy {
			continue
		}
		if (s.closing != 0 && at >= s.closing) || srv.clockLocked(at)-s.idle >= s.lease {
			srv.endLocked(s)
		}
	}
}

func (srv *server) endLocked(s *session) {
	s.over = true
	delete(srv.sessions, s)
	for k, owner := range srv.owners {
		if owner == s {
			srv.freeLocked(k)
		}
	}
}

func (srv *server) freeLocked(k dialect.Key) {
	delete(srv.owners, k)
	srv.freed[k] = now()
}

// killLocked ends s without the client's or the lease's doing: the one case in
// which a lock is free before its holder can know.
func (srv *server) killLocked(s *session) {
	if !s.over {
		s.killed = now()
		srv.endLocked(s)
	}
}

// untilDue is when the server next ends a session, if nobody speaks.
func (srv *server) untilDue() time.Duration {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.catchUpLocked()
	at, due := now(), time.Duration(math.MaxInt64)
	for s := range srv.sessions {
		left := s.lease - (srv.clockLocked(at) - s.idle)
		left = left*1e6/time.Duration(1e6+srv.drift) + 1
		if s.closing != 0 {
			left = min(left, s.closing-at)
		}
		due = min(due, max(left, s.busy-at, 1))
	}
	return due
}

// owner is whose the key is, by the server's account.
func (srv *server) owner(k sqllock.Key) *session {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.catchUpLocked()
	return srv.owners[dialectKey(k)]
}

// ownedSince reports whether k has been somebody's at a moment from then on.
func (srv *server) ownedSince(k sqllock.Key, then time.Duration) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.catchUpLocked()
	return srv.owners[dialectKey(k)] != nil || srv.freed[dialectKey(k)] >= then
}

// leftover counts what the server keeps.
func (srv *server) leftover() (locks, sessions, unclosed int) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.catchUpLocked()
	return len(srv.owners), len(srv.sessions), srv.opened - srv.closed
}

// cutUntil is when l's network is whole again.
func (srv *server) cutUntil(l *link) time.Duration {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return l.cut
}

// heal ends all faults that do not end by themselves, and returns how long the
// others last.
func (srv *server) heal(links []*link) time.Duration {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	last := srv.down
	for _, l := range links {
		l.faults = nil
		last = max(last, l.cut)
	}
	for _, s := range srv.stuck {
		s.stuck = false
		s.abort()
	}
	return max(last-now(), 0)
}
