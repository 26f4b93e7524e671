package postgres

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A session does not accept a response of another server process.
func TestOtherProcessAnswers(t *testing.T) {
	t.Parallel()
	s := opened(t, "pgx", pgtest.Database(t))
	s.pid++ // as if a pooler had moved it
	if err := s.Exchange(&dialect.Batch{}); !isOf(err, dialect.NotExclusive) {
		t.Errorf("Exchange: %v, want a Failure of Kind NotExclusive", err)
	}
	if _, err := s.Held(); !isOf(err, dialect.NotExclusive) {
		t.Errorf("Held: %v, want a Failure of Kind NotExclusive", err)
	}
}

// A session that has been reset has lost its locks without a loss of its
// connection. The next heartbeat reports that, also if it is the first, and not
// only that a statement has failed.
func TestResetEndsSession(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		s := connect(t, db)
		exchange(t, s, dialect.Batch{Try: []dialect.Key{{ID: 1}}})
		execute(t, s.conn, "DISCARD ALL")
		if err := s.Exchange(&dialect.Batch{}); !isOf(err, dialect.NotExclusive) {
			t.Errorf("Exchange: %v, want a Failure of Kind NotExclusive", err)
		}
	})
}

// A pooler that goes back from transaction mode hands on server processes with
// prepared statements of others. A session that meets one of the name that its
// driver uses ends, and does not fail for ever.
func TestPreparedStatementOfAnotherEndsSession(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		first := connect(t, db)
		exchange(t, first, dialect.Batch{})
		s := connect(t, db)
		const names = "SELECT coalesce(string_agg(quote_ident(name), ',' ORDER BY name), '') FROM pg_prepared_statements"
		var later, now string
		must(t, errors.Join(first.conn.QueryRowContext(t.Context(), names).Scan(&later), s.conn.QueryRowContext(t.Context(), names).Scan(&now)))
		for name := range strings.SplitSeq(later, ",") {
			if !strings.Contains(now, name) {
				execute(t, s.conn, "PREPARE "+name+" AS SELECT 1")
			}
		}
		if err := s.Exchange(&dialect.Batch{}); !isOf(err, dialect.Gone) {
			t.Errorf("Exchange: %v, want a Failure of Kind Gone", err)
		}
	})
}

// A session compiles no statement, whatever the database sets: that would take
// longer than to carry it out.
func TestSessionDoesNotCompile(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	execute(t, openPool(t, "pgx", dsn), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET jit = on', current_database()); END $$")
	for _, driver := range pgtest.Drivers() {
		var jit string
		if err := opened(t, driver, dsn).conn.QueryRowContext(t.Context(), "SHOW jit").Scan(&jit); err != nil || jit != "off" {
			t.Errorf("%s: jit is %q, %v", driver, jit, err)
		}
	}
}
