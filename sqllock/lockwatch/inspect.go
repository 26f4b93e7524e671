package lockwatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
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
	o := newInspectOptions(opts)
	seen, err := bounded(ctx, func() (look, error) { return lookAt(ctx, db, o.schema) })
	if err != nil {
		return nil, publicError(err)
	}
	return seen.Snapshot, nil
}

// bounded calls question and returns its answer. If ctx ends first, bounded
// returns the error of ctx at once, and question goes on without a reader.
func bounded[T any](ctx context.Context, question func() (T, error)) (none T, err error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := question()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil && ctx.Err() != nil { // the driver may only report that the server has cancelled the query
			return none, ctx.Err()
		}
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// publicError returns err as callers of this package see it. The error of a
// context stays as it is.
func publicError(err error) error {
	var failure *dialect.Failure
	switch {
	case errors.As(err, &failure) && failure.Kind == dialect.Statement, errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("lockwatch: %w", err)
	case failure != nil:
		return withSentinel(failure)
	}
	return err
}

// withSentinel adds the error of package sqllock that callers compare with.
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
