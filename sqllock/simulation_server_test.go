package sqllock

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A simServer is a database in memory that also does what a server does with
// time: by its own clock, it ends a session that has been silent for the lease.
//
// Time is looked at when somebody comes: what is due by then happens first.
type simServer struct {
	drift   int64         // how much faster its clock runs, in millionths
	latency time.Duration // of the network, each way
	began   time.Duration
	world   *simWorld

	mu       sync.Mutex // protects what follows, sessions' and links' included
	stepped  time.Duration
	forward  time.Duration // when its clock was last set forward; 0: never
	owners   map[dialect.Key]*simSession
	freed    map[dialect.Key]time.Duration // when it last had no owner any more
	sessions map[*simSession]bool          // those that it has not ended
	down     time.Duration                 // until then it refuses connections
	stuck    []*simSession                 // with a deaf driver, until all has healed
	tokens   int64
	opened   int
	closed   int // by the clients
}

// A simLink is what is between one client and the server, and the client's
// suspends.
type simLink struct {
	asleep atomic.Int64 // how long the client was suspended, in all

	cut   time.Duration // until then nothing gets through
	fates []simFate     // of the next statements
}

// boot is the client's clock that goes on in a suspend.
func (l *simLink) boot() time.Duration { return now() + time.Duration(l.asleep.Load()) }

// clockLocked is the server's clock at a time of the clients'.
func (f *simServer) clockLocked(at time.Duration) time.Duration {
	return f.paceLocked(at-f.began) + f.stepped
}

// paceLocked is how far the server's clock goes in d.
func (f *simServer) paceLocked(d time.Duration) time.Duration {
	return d + d*time.Duration(f.drift)/1e6
}

// catchUpLocked does what was due by now: ends sessions that have been silent for
// their lease, or whose client has closed the connection.
func (f *simServer) catchUpLocked() {
	at := simNow()
	for s := range f.sessions {
		if at < s.busy {
			continue
		}
		if (s.closing != 0 && at >= s.closing) || f.clockLocked(at)-s.idle >= s.lease {
			f.endLocked(s)
		}
	}
}

func (f *simServer) endLocked(s *simSession) {
	s.over = true
	delete(f.sessions, s)
	for k, owner := range f.owners {
		if owner == s {
			f.freeLocked(k)
		}
	}
}

func (f *simServer) freeLocked(k dialect.Key) {
	delete(f.owners, k)
	f.freed[k] = simNow()
}

// killLocked ends s without the client's or the lease's doing: the one case in
// which a lock is free before its holder can know.
func (f *simServer) killLocked(s *simSession) {
	if !s.over {
		s.killed = simNow()
		f.endLocked(s)
	}
}

// untilDue is when the server next ends a session, if nobody speaks.
func (f *simServer) untilDue() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	at, due := simNow(), forever
	for s := range f.sessions {
		left := s.lease - (f.clockLocked(at) - s.idle)
		left = left*1e6/time.Duration(1e6+f.drift) + 1
		if s.closing != 0 {
			left = min(left, s.closing-at)
		}
		due = min(due, max(left, s.busy-at, 1))
	}
	return due
}

// owner is whose the key is, by the server's account.
func (f *simServer) owner(k Key) *simSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	return f.owners[k.id()]
}

// ownedSince reports whether k has been somebody's at a moment from then on.
func (f *simServer) ownedSince(k Key, then time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	return f.owners[k.id()] != nil || f.freed[k.id()] >= then
}

// leftover counts what the server keeps.
func (f *simServer) leftover() (locks, sessions, unclosed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	return len(f.owners), len(f.sessions), f.opened - f.closed
}

// cutUntil is when l's network is whole again.
func (f *simServer) cutUntil(l *simLink) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return l.cut
}

// heal ends all faults that do not end by themselves, and returns how long the
// others last.
func (f *simServer) heal(links []*simLink) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.down
	for _, l := range links {
		l.fates = nil
		last = max(last, l.cut)
	}
	for _, s := range f.stuck {
		s.deaf = false
		s.abort()
	}
	return max(last-simNow(), 0)
}

// simDialect is how a client reaches the server.
type simDialect struct {
	server *simServer
	link   *simLink
}

// Traits implements dialect.Dialect.
func (d simDialect) Traits() dialect.Traits {
	return dialect.Traits{Lease: defaultLease, Spread: true, CloseTimeout: 100 * time.Millisecond}
}

// Open implements dialect.Dialect.
func (d simDialect) Open(ctx context.Context, _ *sql.DB, set dialect.Settings) (dialect.Session, error) {
	f := d.server
	s := &simSession{server: f, link: d.link, lease: set.Lease, aborted: make(chan struct{}), secrets: make(map[dialect.SecretCheck]bool)}
	defer context.AfterFunc(ctx, s.abort)()
	if !s.travel(0) {
		return nil, ctx.Err()
	}
	f.mu.Lock()
	if simNow() < f.down {
		f.mu.Unlock()
		return nil, errGone
	}
	f.opened++
	s.blocks = f.opened%2 == 0
	f.sessions[s] = true
	s.idle = f.clockLocked(simNow())
	f.mu.Unlock()
	if !s.travel(0) {
		s.Destroy()
		return nil, ctx.Err()
	}
	return s, nil
}
