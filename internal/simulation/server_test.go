package simulation

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math"
	"sync"
	"sync/atomic"
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

// A link is what is between one client and the server, and the client's
// suspends.
type link struct {
	asleep atomic.Int64 // how long the client was suspended, in all

	cut   time.Duration    // until then nothing gets through
	fates []statementFault // of the next statements
	woke  time.Duration    // when the client's last suspend ended; 0: never
}

// boot is the client's clock that goes on in a suspend.
func (l *link) boot() time.Duration { return now() + time.Duration(l.asleep.Load()) }

// clockLocked is the server's clock at a time of the clients'.
func (f *server) clockLocked(at time.Duration) time.Duration {
	return f.paceLocked(at-f.began) + f.stepped
}

// paceLocked is how far the server's clock goes in d.
func (f *server) paceLocked(d time.Duration) time.Duration {
	return d + d*time.Duration(f.drift)/1e6
}

// catchUpLocked does what was due by now: ends sessions that have been silent for
// their lease, or whose client has closed the connection.
func (f *server) catchUpLocked() {
	at := now()
	for s := range f.sessions {
		if at < s.busy {
			continue
		}
		if (s.closing != 0 && at >= s.closing) || f.clockLocked(at)-s.idle >= s.lease {
			f.endLocked(s)
		}
	}
}

func (f *server) endLocked(s *session) {
	s.over = true
	delete(f.sessions, s)
	for k, owner := range f.owners {
		if owner == s {
			f.freeLocked(k)
		}
	}
}

func (f *server) freeLocked(k dialect.Key) {
	delete(f.owners, k)
	f.freed[k] = now()
}

// killLocked ends s without the client's or the lease's doing: the one case in
// which a lock is free before its holder can know.
func (f *server) killLocked(s *session) {
	if !s.over {
		s.killed = now()
		f.endLocked(s)
	}
}

// untilDue is when the server next ends a session, if nobody speaks.
func (f *server) untilDue() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	at, due := now(), time.Duration(math.MaxInt64)
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
func (f *server) owner(k sqllock.Key) *session {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	return f.owners[dialectKey(k)]
}

// ownedSince reports whether k has been somebody's at a moment from then on.
func (f *server) ownedSince(k sqllock.Key, then time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	return f.owners[dialectKey(k)] != nil || f.freed[dialectKey(k)] >= then
}

// leftover counts what the server keeps.
func (f *server) leftover() (locks, sessions, unclosed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	return len(f.owners), len(f.sessions), f.opened - f.closed
}

// cutUntil is when l's network is whole again.
func (f *server) cutUntil(l *link) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return l.cut
}

// heal ends all faults that do not end by themselves, and returns how long the
// others last.
func (f *server) heal(links []*link) time.Duration {
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
	return max(last-now(), 0)
}

// dialectKey is k as the database sees it.
func dialectKey(k sqllock.Key) dialect.Key {
	if _, _, ok := k.Pair(); ok {
		return dialect.Key{Space: dialect.TwoInts, ID: k.Int64()}
	}
	return dialect.Key{Space: dialect.Bigint, ID: k.Int64()}
}

// A clientDriver is a client's driver of database/sql. It brings its dialect, and
// has no connections of its own.
type clientDriver struct {
	server *server
	link   *link
}

// Dialect implements dialect.Driver.
func (d clientDriver) Dialect() dialect.Dialect { return clientDialect(d) }

// Driver implements driver.Connector.
func (d clientDriver) Driver() driver.Driver { return d }

// Connect implements driver.Connector.
func (clientDriver) Connect(context.Context) (driver.Conn, error) { return nil, errNoConns }

// Open implements driver.Driver.
func (clientDriver) Open(string) (driver.Conn, error) { return nil, errNoConns }

var errNoConns = errors.New("a simulated driver has no connections")

// clientDialect is how a client reaches the server.
type clientDialect struct {
	server *server
	link   *link
}

// BootTime implements dialect.BootClock.
func (d clientDialect) BootTime() time.Duration { return d.link.boot() }

// Traits implements dialect.Dialect.
func (d clientDialect) Traits() dialect.Traits {
	return dialect.Traits{Lease: dialect.DefaultLease, HeldPerSession: d.server.perSession, CloseTimeout: dialect.ConnectionCloseTimeout}
}

var errGone error = &dialect.Failure{Kind: dialect.Gone, Reason: "gone"}

// Open implements dialect.Dialect.
func (d clientDialect) Open(ctx context.Context, _ *sql.DB, set dialect.Settings) (dialect.Session, error) {
	f := d.server
	s := &session{server: f, link: d.link, lease: set.Lease, aborted: make(chan struct{}), claims: make(map[dialect.SecretCheck]bool)}
	defer context.AfterFunc(ctx, s.abort)()
	if !s.travel(0) {
		return nil, ctx.Err()
	}
	f.mu.Lock()
	if now() < f.down {
		f.mu.Unlock()
		return nil, errGone
	}
	f.opened++
	s.blocks = f.opened%2 == 0
	f.sessions[s] = true
	s.idle = f.clockLocked(now())
	f.mu.Unlock()
	if !s.travel(0) {
		s.Destroy()
		return nil, ctx.Err()
	}
	return s, nil
}
