package simulation

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A client is a process on a machine of its own.
type client struct {
	link    *link
	db      *sql.DB
	session *sqllock.Session // nil while closed; protected by world.mu
}

// A link is the network between one client and the server. It also records how
// long the client's machine was suspended.
type link struct {
	asleep atomic.Int64 // the length of all suspends

	// protected by server.mu
	cut    time.Duration    // no message passes until then
	faults []statementFault // of the next statements
	woke   time.Duration    // when the last suspend ended; 0: there was none
}

// boot returns the time by the client's boot clock. It goes on in a suspend.
func (l *link) boot() time.Duration { return now() + time.Duration(l.asleep.Load()) }

// open opens a Session for c and reports whether it succeeded.
func (w *world) open(c *client) bool {
	opts := []sqllock.Option{sqllock.WithLease(lease), sqllock.WithMaxConns(3), sqllock.WithLogger(slog.New(slog.DiscardHandler))}
	if w.plan.Async {
		opts = append(opts, sqllock.WithAsyncUnlock())
	}
	if w.plan.IdleClose > 0 {
		opts = append(opts, sqllock.WithIdleClose(w.plan.IdleClose))
	}
	s, err := sqllock.Open(background, c.db, opts...)
	if err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.session = s
	return true
}

// A clientDriver is a client's driver of database/sql. It brings its dialect.
// It has no connections: a session of the dialect stands for one.
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

// A clientDialect opens sessions from one client.
type clientDialect struct {
	server *server
	link   *link
}

// BootTime implements dialect.BootClock.
func (d clientDialect) BootTime() time.Duration { return d.link.boot() }

// Traits implements dialect.Dialect.
func (d clientDialect) Traits() dialect.Traits { return d.server.traits }

// traitsOf returns the traits of a server that has readers. A client opens another
// session for each perSession locks.
func traitsOf(perSession int) dialect.Traits {
	return dialect.Traits{Lease: dialect.DefaultLease, HeldPerSession: perSession, CloseTimeout: dialect.ConnectionCloseTimeout, Readers: true}
}

var errGone error = &dialect.Failure{Kind: dialect.Gone, Reason: "gone"}

// Open implements dialect.Dialect.
func (d clientDialect) Open(ctx context.Context, _ *sql.DB, set dialect.Settings) (dialect.Session, error) {
	srv := d.server
	s := &session{server: srv, link: d.link, lease: set.Lease, aborted: make(chan struct{})}
	defer context.AfterFunc(ctx, s.abort)()
	if srv.stage != nil {
		return srv.stage.open(s)
	}
	if !s.travel(0) {
		return nil, ctx.Err()
	}
	srv.mu.Lock()
	if now() < srv.down {
		srv.mu.Unlock()
		return nil, errGone
	}
	srv.addLocked(s)
	srv.mu.Unlock()
	if !s.travel(0) {
		s.Destroy()
		return nil, ctx.Err()
	}
	return s, nil
}

// contendedKeys are the keys for which the callers contend.
var contendedKeys = []sqllock.Key{sqllock.ID(1), sqllock.ID(2), sqllock.Namespace("simulation").Key("three"), sqllock.Pair(1, 1)}

// wideKeys make a group of TryEach so wide that a statement asks for a part of it.
var wideKeys = func() (keys []sqllock.Key) {
	for i := range int64(12) {
		keys = append(keys, sqllock.ID(100+i))
	}
	return keys
}()

// dialectKey returns k as the database sees it.
func dialectKey(k sqllock.Key) dialect.Key {
	if _, _, ok := k.Pair(); ok {
		return dialect.Key{Space: dialect.TwoInts, ID: k.Int64()}
	}
	return dialect.Key{Space: dialect.Bigint, ID: k.Int64()}
}
