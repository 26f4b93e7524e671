// Package queue runs the jobs of a table, each to its end exactly once, in any
// number of processes:
//
//	q, err := queue.Open(ctx, db, queue.Kinds{"invoice": {Work: invoice}}) // db is a *sqlx.DB
//	…
//	locks, err := sqllock.Open(ctx, lockDB) // a small pool of its own
//	…
//	err = queue.Run(ctx, queue.AdvisoryLock(q, locks), 8) // or SkipLocked(q, locks)
//
// There are two ways to share the jobs out, on the same table. With
// [AdvisoryLock] a lock says that a worker has a job. With [SkipLocked] a
// column says so, and a lock says whether that worker lives. It is a recipe, to
// be read and changed.
package queue

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Locks is what a way needs of a locker: a *sqllock.Session has it.
type Locks interface {
	sqllock.Locker
	TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
}

// A Queue is a table of jobs and what to do for each kind of them. It is safe for
// concurrent use.
type Queue struct {
	db      *sqlx.DB
	kinds   Kinds
	schema  string // where the table is
	options options

	names      string // of the kinds, as literal gives them
	singletons string // of those that are
}

// Open returns a Queue on the tables of [Schema]. The error says so if they are
// missing, or in a schema that is not in the search_path. It is ErrUnavailable
// if the database is away. Jobs of other kinds are left to other processes.
//
// Open panics without a db or kinds.
func Open(ctx context.Context, db *sqlx.DB, kinds Kinds, opts ...Option) (*Queue, error) {
	if db == nil {
		panic("queue: Open needs a *sqlx.DB that is not nil")
	}
	q := &Queue{db: db, kinds: kinds, options: defaults()}
	q.names, q.singletons = kinds.names()
	for _, opt := range opts {
		opt(&q.options)
	}
	for _, table := range []string{"latchkey_fence", "jobs"} {
		schema, err := find(ctx, db, table)
		if err != nil {
			return nil, err
		}
		q.schema = schema // at the end, that of jobs
	}
	return q, nil
}

// find returns the schema in which the search_path finds table.
func find(ctx context.Context, db *sqlx.DB, table string) (string, error) {
	var places []struct {
		Schema  string `db:"schema"`
		Visible bool   `db:"visible"`
	}
	err := db.SelectContext(ctx, &places, `SELECT n.nspname AS schema, pg_table_is_visible(c.oid) AS visible
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = $1 AND c.relkind IN ('r', 'p')
		ORDER BY 2 DESC, 1`, table)
	switch {
	case err != nil:
		return "", safe(err)
	case len(places) == 0:
		return "", fmt.Errorf("queue: there is no table %s in the database: run queue.Schema first", table)
	case !places[0].Visible:
		return "", fmt.Errorf("queue: the table %s is in schema %q, which is not in the search_path: add it there, for the pool's connections", table, places[0].Schema)
	}
	return places[0].Schema, nil
}

// key returns the key of a job's lock. Locks belong to the whole database, so
// the schema is in the key: queues in two schemas are independent. It is a name
// and not a sqllock.ID, since other users of the database may number their
// locks.
func (q *Queue) key(id int64) sqllock.Key {
	return sqllock.Namespace("job").Key(fmt.Sprintf("%s/%d", q.schema, id))
}

// kindKey returns the key under which at most one job of a singleton kind runs.
func (q *Queue) kindKey(kind string) sqllock.Key {
	return sqllock.Namespace("kind").Key(q.schema + "/" + kind)
}

// workerKey returns the key that a worker holds for as long as it lives.
func (q *Queue) workerKey(worker int64) sqllock.Key {
	return sqllock.Namespace("worker").Key(fmt.Sprintf("%s/%d", q.schema, worker))
}

// An Option changes a Queue.
type Option func(*options)

type options struct {
	poll    time.Duration
	backoff time.Duration
	floor   time.Duration
	log     *slog.Logger
	ended   func(Job, Outcome)
}

func defaults() options {
	return options{poll: 200 * time.Millisecond, backoff: time.Second, floor: time.Second, log: slog.Default()}
}

// WithPoll sets how long an idle worker waits before it looks for a job again; the
// default is 200 ms. The pause is shortened by up to a half at random.
//
// WithPoll panics if every is not positive.
func WithPoll(every time.Duration) Option {
	mustBePositive("WithPoll", every)
	return func(o *options) { o.poll = every }
}

// WithBackoff sets how long a job waits after its first failure; the default is
// 1 s. It doubles with each further failure, up to an hour, and is shortened by
// up to a half at random.
//
// WithBackoff panics if first is not positive.
func WithBackoff(first time.Duration) Option {
	mustBePositive("WithBackoff", first)
	return func(o *options) { o.backoff = min(first, maxBackoff) }
}

// WithReapFloor sets the age of an attempt from which the reaper of
// [SkipLocked] checks whether the job's worker lives; the default is 1 s. It
// only saves checks: the lock decides. The reaper looks once in that time.
//
// WithReapFloor panics if age is not positive.
func WithReapFloor(age time.Duration) Option {
	mustBePositive("WithReapFloor", age)
	return func(o *options) { o.floor = age }
}

// WithLogger sets where trouble with the database is logged; the default is
// slog.Default(). It panics if log is nil.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("queue: WithLogger needs a logger")
	}
	return func(o *options) { o.log = log }
}

// WithEnded sets a function that is called after each attempt, for metrics. Several
// goroutines call it at once. WithEnded panics if f is nil.
func WithEnded(f func(Job, Outcome)) Option {
	if f == nil {
		panic("queue: WithEnded needs a function")
	}
	return func(o *options) { o.ended = f }
}

func mustBePositive(option string, d time.Duration) {
	if d <= 0 {
		panic("queue: " + option + " needs a positive duration")
	}
}
