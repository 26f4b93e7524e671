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
// each. That is no fault of the database, so another one is tried.
func connection(ctx context.Context, s *subject) Result {
	d, err := choose.Dialect(ctx, s.db, s.leaseTable)
	for range s.pool.Idle {
		if !isGone(err) {
			break
		}
		d, err = choose.Dialect(ctx, s.db, s.leaseTable)
	}
	var failure *dialect.Failure
	if errors.As(err, &failure) && failure.Kind == dialect.NotExclusive && s.mayKeepRows() { // Open has refused any other Session
		s.leaseTable = true
		d, err = choose.Dialect(ctx, s.db, s.leaseTable)
	}
	if err != nil {
		return failed(err)
	}
	traits := d.Traits()
	s.dialect, s.lease = sqllock.Dialect(traits.Name), traits.Lease
	for _, session := range s.sessions {
		if stats := session.Stats(); stats.Lease > 0 {
			s.lease = min(s.lease, stats.Lease)
		}
	}
	return passed("the database responds")
}

// isGone reports whether err is that of a connection that has ended. A failed
// login is none: another attempt would count as another failed login.
func isGone(err error) bool {
	var failure *dialect.Failure
	return errors.As(dialect.Fail(err), &failure) && failure.Kind == dialect.Gone && !failure.Permanent
}

// mayKeepRows reports whether a Session on PostgreSQL may keep its locks in a
// lease table: no server process is known of its connections. The other reason
// for that is a pooler in session mode.
func (s *subject) mayKeepRows() bool {
	for _, session := range s.sessions {
		if session.Dialect() != sqllock.PostgreSQL {
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

// needsOneConnection reports whether a Session needs one connection of the pool
// at a time. One of advisory locks needs a second one for its proof.
func (s *subject) needsOneConnection() bool {
	return s.dialect == sqllock.SQLite || s.leaseTable || s.mayKeepRows()
}

// read scans the one row of query. On PostgreSQL its transaction is read-only,
// so that nothing that query calls can change anything.
func (s *subject) read(ctx context.Context, query string, dest ...any) error {
	conn, err := dbconn.Lend(ctx, s.db)
	if err != nil {
		return err
	}
	defer conn.Close()
	if s.dialect != sqllock.PostgreSQL {
		return conn.QueryRowContext(ctx, query).Scan(dest...)
	}
	if err := postgres.Tidy(ctx, conn); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.QueryRowContext(ctx, query).Scan(dest...); err != nil {
		return err
	}
	return tx.Commit()
}

// clock measures by how much the clock of the server, which query returns in
// microseconds since 1970, is ahead of the clock of this process.
//
// Locks do not depend on it: each side measures durations only. But people
// compare the times of logs and of the registry.
func clock(query string) func(context.Context, *subject) Result {
	const (
		samples = 5
		limit   = time.Second
	)
	return func(ctx context.Context, s *subject) Result {
		conn, err := dbconn.Lend(ctx, s.db)
		if err != nil {
			return failed(err)
		}
		defer conn.Close()
		var offset time.Duration
		bound := time.Duration(-1) // half of the shortest round trip
		for range samples {
			var micros int64
			sent := time.Now()
			if err := conn.QueryRowContext(ctx, query).Scan(&micros); err != nil {
				return failed(err)
			}
			half := time.Since(sent) / 2
			if bound < 0 || half < bound {
				offset, bound = time.UnixMicro(micros).Sub(sent.Add(half)), half
			}
		}
		return clockResult(offset, bound, limit)
	}
}

// clockResult judges an offset that is known up to bound.
func clockResult(offset, bound, limit time.Duration) Result {
	side := "ahead of"
	if offset < 0 {
		offset, side = -offset, "behind"
	}
	if offset-bound <= limit {
		return passed("the clocks of the server and of this process agree up to %v", max(offset+bound, time.Millisecond).Round(time.Millisecond))
	}
	return warning("the clock of the server is "+(offset.Round(10*time.Millisecond)).String()+" "+side+" the clock of this process, so times in logs and in the registry do not fit together",
		"Set both clocks by NTP, without steps: a step of the server's clock by a tenth of the lease costs locks.")
}
