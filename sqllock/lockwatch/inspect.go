package lockwatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/choose"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/session"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Inspect reports who holds the locks of db's database, and who waits for them. It
// finds the kind of the database as [sqllock.Open] does. A [Snapshot] says what
// each kind shows. If the tables of [Schema] exist, Inspect adds what Sessions
// have written there.
//
// Inspect reads and never writes: on PostgreSQL its transaction is read-only for
// the server too. It uses one connection of the pool. That must not be a
// connection on which the caller holds locks ([sqllock.OnConn]).
//
// The rights that it needs:
//   - PostgreSQL: an ordinary role sees which process holds which key. States,
//     addresses and registrations of other roles need pg_read_all_stats. A lease
//     table needs SELECT.
//   - MariaDB: someone must have run INSTALL SONAME 'metadata_lock_info' once.
//     Addresses and states, and connections that wait, need PROCESS.
//   - MySQL: SELECT on performance_schema, whose instrument
//     wait/lock/metadata/sql/mdl is on by default. MariaDB has it too.
//
// Inspect returns when ctx ends, even if the driver is stuck. Its error matches
//   - errors.ErrUnsupported if the database is of another kind, is PostgreSQL 13
//     or older, or does not show its locks; the text says what to change
//   - sqllock.ErrNotExclusive on a standby or replica
//   - sqllock.ErrUnavailable if the database is away
//   - the error of ctx if ctx has ended
//
// An error of the server has a method SQLState. Inspect panics if db is nil.
func Inspect(ctx context.Context, db *sql.DB, opts ...InspectOption) (*Snapshot, error) {
	if db == nil {
		panic("lockwatch: Inspect needs a *sql.DB that is not nil")
	}
	return NewInspector(db, opts...).Inspect(ctx)
}

// An Inspector takes Snapshots of one database again and again, at a lower cost
// than [Inspect]. [NewInspector] makes one. It is safe for concurrent use.
//
// On PostgreSQL an Inspector remembers for a minute which tables there are, and a
// Snapshot costs one query. On other databases it does the same as Inspect.
//
// At most one question is with the driver. While the driver is stuck with an earlier
// one, an Inspector takes no second connection of the pool.
type Inspector struct {
	db       *sql.DB
	options  inspectOptions
	remember time.Duration // how long the registry holds
	busy     chan struct{} // holds a token while a question is with the driver; protects the fields below

	registry postgres.Registry // as of an earlier Snapshot
	until    time.Time         // the registry holds before this
}

// NewInspector returns an Inspector for db. It makes no request. It panics if db is
// nil.
func NewInspector(db *sql.DB, opts ...InspectOption) *Inspector {
	if db == nil {
		panic("lockwatch: NewInspector needs a *sql.DB that is not nil")
	}
	var o inspectOptions
	for _, opt := range opts {
		opt.setInspect(&o)
	}
	return &Inspector{db: db, options: o, remember: time.Minute, busy: make(chan struct{}, 1)}
}

// Inspect returns a Snapshot, like the function [Inspect] and with the same errors.
// It also returns an error that matches sqllock.ErrUnavailable, at once, while an
// earlier question is with the driver.
func (i *Inspector) Inspect(ctx context.Context) (*Snapshot, error) {
	return ask(ctx, i, forever, i.look)
}

// forever is the timeout of a question that only its context bounds.
const forever = math.MaxInt64

// ask puts a question to the database of i. It returns in time, even if the driver
// is stuck. While an earlier question is with the driver it fails at once.
func ask[T any](ctx context.Context, i *Inspector, timeout time.Duration, question func(context.Context) (T, error)) (none T, err error) {
	select {
	case i.busy <- struct{}{}:
	default:
		return none, errStuckLook
	}
	answer, err := dbconn.Within(ctx, timeout, func(ctx context.Context) (T, error) {
		defer func() { <-i.busy }()
		return question(ctx)
	})
	return answer, publicError(err)
}

var errStuckLook = fmt.Errorf("%w: an earlier look is stuck in the driver", sqllock.ErrUnavailable)

// look takes a Snapshot.
func (i *Inspector) look(ctx context.Context) (*Snapshot, error) {
	s, err := i.read(ctx)
	if err == nil && i.options.noNames {
		s.forgetNames()
	}
	return s, err
}

// read takes a Snapshot, with the tables that are known or after a look for them.
func (i *Inspector) read(ctx context.Context) (*Snapshot, error) {
	if _, own := i.db.Driver().(dialect.Driver); own {
		return nil, errNothingToSee
	}
	conn, err := postgres.Borrow(ctx, i.db)
	if err != nil {
		return nil, dialect.Fail(err)
	}
	defer conn.Close()
	if time.Now().Before(i.until) {
		seen, err := i.registry.Inspect(ctx, conn)
		if err == nil {
			return snapshotOf(sqllock.PostgreSQL, seen), nil
		}
		if !dialect.IsStatement(err) {
			return nil, err
		}
		i.until = time.Time{} // the tables may be others now
	}
	d, err := choose.OnConn(ctx, conn, false)
	if _, isMySQL := d.(mysql.Dialect); isMySQL || isUnknown(err) { // perhaps it has a lease table
		d, err = choose.OnConn(ctx, conn, true)
	}
	if isUnknown(err) {
		return nil, errNothingToSee
	}
	if err != nil {
		return nil, err
	}
	inspector, ok := d.(dialect.Inspector)
	if !ok { // PostgreSQL itself
		if i.registry, err = postgres.FindTables(ctx, conn, i.options.schema); err != nil {
			return nil, err
		}
		inspector, i.until = i.registry, time.Now().Add(i.remember)
	}
	seen, err := inspector.Inspect(ctx, conn)
	if err != nil {
		return nil, err
	}
	return snapshotOf(sqllock.Dialect(d.Traits().Name), seen), nil
}

// isUnknown reports whether err, of package choose, is about a system that none
// of the dialects is for.
func isUnknown(err error) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && failure.Kind == dialect.NotExclusive
}

var errNothingToSee = fmt.Errorf("this database is none that latchkey has locks in: %w", errors.ErrUnsupported)

// publicError returns err as callers of this package see it, with the error of
// package sqllock that they compare with. The error of a context stays as it is.
func publicError(err error) error {
	var failure *dialect.Failure
	switch {
	case errors.As(err, &failure) && failure.Kind == dialect.Statement, errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("lockwatch: %w", err)
	case failure == nil:
		return err
	}
	return session.FromDialect(failure)
}
