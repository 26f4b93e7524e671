package lockdoctor

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/choose"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// connection checks that the database responds, and notes which kind it is and
// which lease the Sessions have on it.
//
// A restart of the server leaves idle connections in the pool that fail once
// each. That is no fault of the database, so another one is tried. A failed
// login is tried once: another attempt would count as another failed login.
func connection(ctx context.Context, s *subject) (fine string, err error) {
	var (
		d       dialect.Dialect
		failure *dialect.Failure
	)
	for range s.pool.Idle + 1 {
		d, err = choose.Dialect(ctx, s.db, s.leaseTable)
		if !errors.As(dialect.Fail(err), &failure) || failure.Kind != dialect.Gone || failure.Permanent {
			break
		}
	}
	if errors.As(err, &failure) && failure.Kind == dialect.NotExclusive && s.mayKeepRows() { // Open has refused any other Session
		s.leaseTable = true
		d, err = choose.Dialect(ctx, s.db, s.leaseTable)
	}
	if err != nil {
		return "", unconnected{err}
	}
	traits := d.Traits()
	s.dialect, s.lease = sqllock.Dialect(traits.Name), traits.Lease
	for _, session := range s.sessions {
		if stats := session.Stats(); stats.Lease > 0 {
			s.lease = min(s.lease, stats.Lease)
		}
	}
	return "the database responds", nil
}

// mayKeepRows reports whether a Session on a server may keep its locks in a lease
// table: no server process is known of its connections. The other reason for that
// is a pooler in session mode.
func (s *subject) mayKeepRows() bool {
	for _, session := range s.sessions {
		if session.Dialect() == sqllock.SQLite {
			continue
		}
		for _, c := range session.Connections() {
			if c.PID == 0 {
				return true
			}
		}
	}
	return false
}

// lend returns a connection of the pool, which the caller closes.
func (s *subject) lend(ctx context.Context) (*sql.Conn, error) {
	conn, err := dbconn.Lend(ctx, s.db)
	if err != nil {
		return nil, unconnected{err}
	}
	return conn, nil
}

// each calls row for each row of query. On PostgreSQL its transaction is
// read-only, so that nothing that query calls can change anything.
func (s *subject) each(ctx context.Context, query string, row func(scan func(...any) error) error) error {
	conn, err := s.lend(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	ask := conn.QueryContext
	commit := func() error { return nil }
	if s.dialect == sqllock.PostgreSQL {
		if err := postgres.Tidy(ctx, conn); err != nil {
			return err
		}
		tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		ask, commit = tx.QueryContext, tx.Commit
	}
	rows, err := ask(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return commit()
}

// read scans the one row of query.
func (s *subject) read(ctx context.Context, query string, dest ...any) error {
	n := 0
	err := s.each(ctx, query, func(scan func(...any) error) error {
		n++
		return scan(dest...)
	})
	if err == nil && n != 1 {
		return dialect.ErrNonsense
	}
	return err
}

// sleep returns after d, or with the error of ctx when that ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
