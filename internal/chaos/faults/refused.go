package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// refused checks that no Session can be opened at dsn, where locks do not
// exclude.
func (f *Injector) refused(ctx context.Context, dsn string) error {
	drivers := pgtest.Drivers()
	db, err := sql.Open(drivers[f.Rand.IntN(len(drivers))], dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := sqllock.Open(ctx, db, sqllock.WithLease(f.Lease), sqllock.WithLogger(slog.New(slog.DiscardHandler)))
	switch {
	case err == nil:
		return errors.Join(violation("a session was opened where locks do not exclude"), s.Close())
	case !errors.Is(err, sqllock.ErrNotExclusive) && ctx.Err() == nil:
		return violation("opening failed, but not with ErrNotExclusive: %w", err)
	}
	return nil
}

// transactionPooler checks that no Session is opened behind a pooler that gives
// each transaction another connection. What the attempts leave shows at the end:
// see Fleet.Rest.
func transactionPooler(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
	bouncer, err := f.Cluster.PgBouncer("transaction", 5)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bouncer.Close()) }()
	database, err := url.Parse(f.Members[0].Process.Config.Direct)
	if err != nil {
		return nil, err
	}
	for range 3 {
		err = errors.Join(err, f.refused(ctx, bouncer.DSN(database.Path[1:])))
	}
	return nil, err
}

// lockTableFull takes all room of the server's lock table for a while. Sessions
// grant nothing new then, and keep what they have.
func lockTableFull(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
	conn, err := f.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	f.begin()
	return nil, f.during(ctx, f.between(0.1, 0.5, f.Lease), func() error {
		// What was taken before the statement failed stays.
		_, err := conn.ExecContext(ctx, "SELECT count(pg_advisory_lock(2000000, g)) FROM generate_series(1, 200000) g")
		var coded interface{ SQLState() string }
		if !errors.As(err, &coded) || coded.SQLState() != "53200" {
			return fmt.Errorf("the lock table was not filled: %w", err)
		}
		return nil
	}, func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock_all()")
		return err
	})
}
