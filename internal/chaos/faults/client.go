package faults

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A client is a Session in this process, with a pool of its own. Rows use
// clients on servers that the fleet does not use.
type client struct {
	*sqllock.Session
	db *sql.DB
}

// open opens a Session through a random driver.
func (f *Injector) open(ctx context.Context, dsn string, opts ...sqllock.Option) (*client, error) {
	return f.openBy(ctx, f.driver(), dsn, opts...)
}

// driver returns the name of a random driver.
func (f *Injector) driver() string {
	drivers := pgtest.Drivers()
	return drivers[f.Rand.IntN(len(drivers))]
}

func (f *Injector) openBy(ctx context.Context, driver, dsn string, opts ...sqllock.Option) (*client, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	opts = append([]sqllock.Option{
		sqllock.WithLease(f.Lease), sqllock.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)
	s, err := sqllock.Open(ctx, db, opts...)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &client{s, db}, nil
}

func (g *client) close() error { return errors.Join(g.Close(), g.db.Close()) }

// refused checks that no Session can be opened at dsn, where locks do not
// exclude.
func (f *Injector) refused(ctx context.Context, dsn string) error {
	g, err := f.open(ctx, dsn)
	if err == nil {
		return errors.Join(violation("a session was opened where locks do not exclude"), g.close())
	}
	if !errors.Is(err, sqllock.ErrNotExclusive) {
		return unexpected("opening failed, but not with ErrNotExclusive", err)
	}
	return nil
}

// held checks that g cannot have key.
func held(ctx context.Context, g *client, key sqllock.Key) error {
	lock, err := g.TryLock(ctx, key)
	switch {
	case err == nil:
		return errors.Join(violation("a key was granted twice"), lock.Unlock())
	case !errors.Is(err, sqllock.ErrHeld):
		return unexpected("not ErrHeld of a key that is held", err)
	}
	return nil
}

// free checks that g gets key within d.
func free(ctx context.Context, g *client, key sqllock.Key, d time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	lock, err := g.Lock(limited, key)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return violation("a key does not become free: %w", err)
	}
	return lock.Unlock()
}

// told waits until the holder of lock is told of its loss. That happens at once
// if the connection has ended, or when the lease has passed.
func (f *Injector) told(ctx context.Context, lock *sqllock.Lock) error {
	ended := make(chan error, 1)
	lock.OnEnd(func(cause error) { ended <- cause })
	select {
	case cause := <-ended:
		if !errors.Is(cause, sqllock.ErrLost) {
			return violation("the lock ended, and not with ErrLost: %w", cause)
		}
		return nil
	case <-time.After(f.validFor() + time.Second):
		return violation("the server is gone, and the holder was not told")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
