package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "github.com/lib/pq"              // registers "postgres"
	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/sqllock"
)

// errBusy is the error of acquire while another caller holds the name.
var errBusy = errors.New("busy")

// errNotHeld is a release's error if the database says that nothing was held.
var errNotHeld = errors.New("released what was not held")

// locks takes locks on names. Its functions may be called at once from several
// goroutines.
type locks struct {
	// acquire takes the lock on name, or answers errBusy at once. release gives it
	// back, and returns when the others can have it.
	acquire func(ctx context.Context, name string) (release func(context.Context) error, err error)

	close func() error // gives back all connections
}

// A contender is a way to lock, before it is set up: this kit's, or one that
// people use instead. Each is set up as its own documentation says.
type contender struct {
	name    string
	against string // what the kit is compared with: the usual way on the same driver
	redis   bool
	quick   bool // the main ratios are about it
	open    func(ctx context.Context, s *servers, callers int) (*locks, error)
}

// contenders in the order of the report.
func contenders() []contender {
	// rueidis has four connections at its defaults. Tuned by hand it has two, and waits
	// 20 µs for more commands, as its documentation says. That was the fastest of
	// twelve settings tried on two cores for 64 callers and more. For 8 it is slower.
	tuned := rueidis.ClientOption{PipelineMultiplex: 1, MaxFlushDelay: 20 * time.Microsecond}
	return []contender{
		{name: "latchkey, pgx", against: "connection per lock, pgx", quick: true, open: kit("pgx")},
		{name: "latchkey, lib/pq", against: "connection per lock, lib/pq", quick: true, open: kit("postgres")},
		{name: "connection per lock, pgx", quick: true, open: perConnection("pgx")},
		{name: "connection per lock, lib/pq", quick: true, open: perConnection("postgres")},
		{name: "transaction per lock, pgx", open: perTransaction},
		{name: "lease row, pgx", open: leaseRows},
		{name: "rueidis", redis: true, quick: true, open: onRueidis(rueidis.ClientOption{})},
		{name: "rueidis, tuned", redis: true, quick: true, open: onRueidis(tuned)},
		{name: "redislock", redis: true, open: onRedislock},
		{name: "redsync", redis: true, open: onRedsync},
	}
}

const namespace sqllock.Namespace = "bench"

// maxHeld lets thousands of callers hold a lock each: the default is 4,000.
const maxHeld = 20_000

// kit is one Session, on a pool of five, at its defaults but for WithMaxHeld.
func kit(driver string) func(context.Context, *servers, int) (*locks, error) {
	return func(ctx context.Context, s *servers, _ int) (*locks, error) {
		session, closeAll, err := openSession(ctx, s, driver)
		if err != nil {
			return nil, err
		}
		return &locks{close: closeAll, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
			lock, err := session.TryLock(ctx, namespace.Key(name))
			switch {
			case err == nil:
				return func(context.Context) error { return lock.Unlock() }, nil
			case errors.Is(err, sqllock.ErrHeld):
				return nil, errBusy
			}
			return nil, err
		}}, nil
	}
}

func openSession(ctx context.Context, s *servers, driver string) (session *sqllock.Session, closeAll func() error, err error) {
	db, err := sql.Open(driver, s.postgres)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(5)
	if session, err = sqllock.Open(ctx, db, sqllock.WithMaxHeld(maxHeld)); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return session, func() error { return errors.Join(session.Close(), db.Close()) }, nil
}
