// Package queue runs the jobs of a table, each to its end exactly once, in any
// number of processes:
//
//	locks, err := sqllock.Open(ctx, lockDB) // a small pool of its own
//	…
//	q, err := queue.Open(ctx, db, locks, queue.Kinds{"invoice": {Work: invoice}}, queue.Options{})
//	…
//	q.Run(ctx, 8)
//
// A lock says that a worker has a job. A job in progress stays "ready" in the
// table. There is nothing to clean up after a dead worker: the server frees its
// locks, and with them its jobs.
//
// The package is an example: copy it into your service, and change it there. Its
// API may change.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Locks is what a Queue needs of a locker: a *sqllock.Session has it.
type Locks interface {
	sqllock.Locker
	TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
}

// Options are the settings of a Queue. A zero value is the default.
type Options struct {
	Poll    time.Duration      // how long an idle worker waits before it looks again; 200 ms
	Backoff time.Duration      // how long a job waits after its first failure; 1 s, doubled each time up to an hour
	Log     *slog.Logger       // gets trouble with the database; slog.Default()
	Ended   func(Job, Outcome) // called after each attempt, by several goroutines at once
}

// A Queue is a table of jobs and what to do for each kind of them. It is safe for
// concurrent use.
type Queue struct {
	db      *sqlx.DB
	locks   Locks
	kinds   Kinds
	options Options
	schema  string // where the table is
	names   string // of the kinds, as literal gives them
}

// Open returns a Queue on the tables of [Schema]. The error says so if the
// search_path does not find them. It is ErrUnavailable if the database is away.
// Jobs of other kinds are left to other processes.
//
// Open panics without db, locks or kinds, and if a kind has no Work.
func Open(ctx context.Context, db *sqlx.DB, locks Locks, kinds Kinds, o Options) (*Queue, error) {
	if db == nil || locks == nil || len(kinds) == 0 {
		panic("queue: Open needs a *sqlx.DB, locks and kinds")
	}
	if o.Poll <= 0 {
		o.Poll = 200 * time.Millisecond
	}
	if o.Backoff <= 0 {
		o.Backoff = time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	q := &Queue{db: db, locks: locks, kinds: kinds, options: o, names: kinds.names()}
	err := db.GetContext(ctx, &q.schema, `SELECT coalesce((SELECT relnamespace::regnamespace::text FROM pg_class
		WHERE oid = to_regclass('jobs') AND to_regclass('latchkey_fence') IS NOT NULL), '')`)
	switch {
	case err != nil:
		return nil, safe(err)
	case q.schema == "":
		return nil, errNoTable
	}
	return q, nil
}

var errNoTable = errors.New("queue: the tables jobs and latchkey_fence are missing: run queue.Schema, or add their schema to the search_path")

// key returns the key of a job. Locks belong to the whole database, so the schema
// is in the key: queues in two schemas are independent.
func (q *Queue) key(job Job) sqllock.Key {
	return sqllock.Namespace("job").Key(fmt.Sprintf("%s/%d", q.schema, job.ID))
}
