package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// poolSize is how many connections those have that need one per lock: about
// what a service can have to itself of PostgreSQL's default of 100.
const poolSize = 90

// lease is how long the locks live that are not tied to a connection; it is
// the kit's default too.
const lease = 10 * time.Second

// openPool opens a pool that closes no connection for idleness. All are
// connected: a Session is before it is measured, so the others are too.
func openPool(ctx context.Context, s *servers, driver string, callers int) (*sql.DB, error) {
	db, err := sql.Open(driver, s.postgres)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	conns := make([]*sql.Conn, min(callers, poolSize))
	var opening errgroup.Group
	for i := range conns {
		opening.Go(func() (err error) {
			conns[i], err = db.Conn(ctx)
			return err
		})
	}
	err = opening.Wait()
	for _, conn := range conns {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// perConnection holds each lock on a connection of its own. lib/pq is at its
// defaults, as it is mostly used: each statement with an argument costs it two
// round trips.
func perConnection(driver string) func(context.Context, *servers, int) (*locks, error) {
	return func(ctx context.Context, s *servers, callers int) (*locks, error) {
		db, err := openPool(ctx, s, driver, callers)
		if err != nil {
			return nil, err
		}
		return &locks{close: db.Close, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			key := namespace.Key(name).Int64() // the number that PostgreSQL sees of the kit
			if err := queryTrue(ctx, conn, "SELECT pg_try_advisory_lock($1)", key, errBusy); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			return func(ctx context.Context) error {
				return errors.Join(queryTrue(ctx, conn, "SELECT pg_advisory_unlock($1)", key, errNotHeld), conn.Close())
			}, nil
		}}, nil
	}
}

// perTransaction holds each lock on a transaction of its own.
func perTransaction(ctx context.Context, s *servers, callers int) (*locks, error) {
	db, err := openPool(ctx, s, "pgx", callers)
	if err != nil {
		return nil, err
	}
	return &locks{close: db.Close, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		if err := queryTrue(ctx, tx, "SELECT pg_try_advisory_xact_lock($1)", namespace.Key(name).Int64(), errBusy); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		return func(context.Context) error { return tx.Commit() }, nil
	}}, nil
}

// queryTrue returns the error isFalse if the query returns false.
func queryTrue(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, query string, key int64, isFalse error,
) error {
	ok := false
	if err := q.QueryRowContext(ctx, query, key).Scan(&ok); err != nil {
		return err
	}
	if !ok {
		return isFalse
	}
	return nil
}

const (
	createLeases = `CREATE TABLE IF NOT EXISTS bench_leases (name text PRIMARY KEY, holder text NOT NULL, expires timestamptz NOT NULL)`
	takeLease    = `
		INSERT INTO bench_leases VALUES ($1, $2, now() + $3 * interval '1 second')
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires = excluded.expires
		WHERE bench_leases.expires < now()`
	giveLease = `DELETE FROM bench_leases WHERE name = $1 AND holder = $2`
)

// leaseRows keeps a row for each lock in a table. The server waits for no disk,
// which it would for rows in production.
func leaseRows(ctx context.Context, s *servers, callers int) (*locks, error) {
	db, err := openPool(ctx, s, "pgx", callers)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, createLeases); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	change := func(ctx context.Context, none error, query string, args ...any) error {
		result, err := db.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, none)
		}
		return nil
	}
	return &locks{close: db.Close, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		holder := rand.Text()
		if err := change(ctx, errBusy, takeLease, name, holder, lease.Seconds()); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return change(ctx, errNotHeld, giveLease, name, holder) }, nil
	}}, nil
}
