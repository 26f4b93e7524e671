package lockwatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Inspect looks who holds and who waits for the advisory locks of db's database, whichever program took
// them, with what the registry of [Schema] says of them where it is there. It reads only, in two
// short questions and a transaction that the server keeps from writing, with one statement for everything, on a connection of the pool, which should not be the one that a caller has
// locks on ([sqllock.OnConn]). It returns when ctx ends, however stuck the driver is.
//
// PostgreSQL shows an ordinary role who holds which key; states, addresses and registrations of
// other roles' sessions need pg_read_all_stats. The locks of a lease table are not advisory
// locks: they are not seen.
//
// On another database than PostgreSQL 14 or newer it fails with an error that matches errors.ErrUnsupported,
// on a standby with ErrNotExclusive, and with ErrUnavailable if the database is
// away; or with ctx's error. An error of the server has an SQLState method.
//
// Inspect panics if db is nil.
func Inspect(ctx context.Context, db *sql.DB, opts ...InspectOption) (*Snapshot, error) {
	if db == nil {
		panic("lockwatch: Inspect needs a *sql.DB that is not nil")
	}
	o := newInspectOptions(opts)
	i, err := bounded(ctx, func() (*postgres.Inspection, error) { return postgres.Inspect(ctx, db, o.schema) })
	if err != nil {
		return nil, inspectError(err)
	}
	return snapshotOf(i), nil
}

// bounded is what ask answers, or ctx's error if that ends first, however stuck the driver is.
func bounded[T any](ctx context.Context, ask func() (T, error)) (none T, err error) {
	type answer struct {
		is  T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		is, err := ask()
		answers <- answer{is, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil && ctx.Err() != nil { // of which a driver may tell only that the server has cancelled it
			return none, ctx.Err()
		}
		return a.is, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func inspectError(err error) error {
	var failure *dialect.Failure
	switch {
	case errors.As(err, &failure) && failure.Kind == dialect.Statement, errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("lockwatch: %w", err)
	case failure != nil:
		return withSentinel(failure)
	}
	return err // the caller's context has ended
}

// withSentinel gives failure the error of package sqllock that callers compare
// with.
func withSentinel(failure *dialect.Failure) error {
	sentinel := sqllock.ErrUnavailable
	switch {
	case failure.Permanent:
		sentinel = sqllock.ErrConfig
	case failure.Kind == dialect.NotExclusive:
		sentinel = sqllock.ErrNotExclusive
	case failure.Kind == dialect.Full:
		sentinel = sqllock.ErrCapacity
	case failure.Kind == dialect.Closed:
		sentinel = sqllock.ErrClosed
	}
	return fmt.Errorf("%w: %w", sentinel, failure)
}
