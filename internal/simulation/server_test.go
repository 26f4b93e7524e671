package simulation

import (
	"math"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A server is a database in memory with a clock of its own. It ends a session
// that has been silent for the lease by that clock.
//
// The server has no goroutine. Each method first does what is due by now.
//
// Invariant: each key has one holder, or readers only, and every holder is in
// sessions.
type server struct {
	world   *world
	drift   int64          // how much faster its clock runs, in millionths
	latency time.Duration  // of the network, each way
	began   time.Duration  // when its clock was right
	traits  dialect.Traits // of its dialect
	stage   *stage         // of a scripted test; nil: the world has a plan

	mu       sync.Mutex                        // protects what follows, and the marked fields of sessions and links
	stepped  time.Duration                     // the sum of all steps of its clock
	forward  time.Duration                     // when its clock was last set forward; 0: never
	holders  map[dialect.Key]map[*session]bool // of the keys that are held, by their mode
	freed    map[dialect.Key]time.Duration     // when the key last lost a holder, by its mode
	sessions map[*session]bool                 // those that it has not ended
	down     time.Duration                     // it rejects connections until then
	stuck    []*session                        // those with a stuck driver, until heal
	tokens   int64                             // the last token
	opened   int                               // sessions ever opened
	closed   int                               // sessions that their clients closed
}

// clockLocked returns the time by the server's clock at a moment of now.
func (srv *server) clockLocked(at time.Duration) time.Duration {
	return srv.paceLocked(at-srv.began) + srv.stepped
}

// paceLocked returns how far the server's clock goes in d.
func (srv *server) paceLocked(d time.Duration) time.Duration {
	return d + d*time.Duration(srv.drift)/1e6
}

// catchUpLocked does what is due by now. It ends each session that has been
// silent for its lease, or whose client has closed the connection.
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

// addLocked begins s.
func (srv *server) addLocked(s *session) {
	srv.opened++
	srv.sessions[s] = true
	s.idle = srv.clockLocked(now())
}

// endLocked ends s and frees its locks.
func (srv *server) endLocked(s *session) {
	s.over = true
	delete(srv.sessions, s)
	for k, holders := range srv.holders {
		if holders[s] {
			srv.freeLocked(k, s)
		}
	}
}

// freeLocked ends the lock of s on k.
func (srv *server) freeLocked(k dialect.Key, s *session) {
	if delete(srv.holders[k], s); len(srv.holders[k]) == 0 {
		delete(srv.holders, k)
	}
	srv.freed[k] = now()
}

// killLocked ends s without warning. Only then is a lock free before its holder
// can know.
func (srv *server) killLocked(s *session) {
	if !s.over {
		s.killed = now()
		srv.endLocked(s)
	}
}

// untilDue returns how long it takes until the server ends a session, if no
// statement comes.
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

// holds reports whether s holds k, in the mode of k.
func (srv *server) holds(s *session, k dialect.Key) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.catchUpLocked()
	return srv.holders[k][s]
}

// ownedSince reports whether a session has held k at any moment since then, in a
// mode that keeps a call from using it.
func (srv *server) ownedSince(key sqllock.Key, reads bool, then time.Duration) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.catchUpLocked()
	k := dialectKey(key)
	owned := len(srv.holders[k]) > 0 || srv.freed[k] >= then
	if !reads {
		owned = owned || len(srv.holders[k.Shared()]) > 0 || srv.freed[k.Shared()] >= then
	}
	return owned
}

// leftover counts the locks and the sessions that the server still has, and the
// sessions that no client has closed.
func (srv *server) leftover() (locks, sessions, unclosed int) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.catchUpLocked()
	return len(srv.holders), len(srv.sessions), srv.opened - srv.closed
}

// cutUntil returns when the partition of l ends.
func (srv *server) cutUntil(l *link) time.Duration {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return l.cut
}

// heal ends the faults that do not end by themselves. It returns how long the
// other faults last.
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

// excludes reports whether two locks are on one key and exclude each other.
func excludes(a, b dialect.Key) bool {
	return a.Exclusive() == b.Exclusive() && !(a.IsShared() && b.IsShared())
}
