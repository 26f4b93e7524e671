package postgres

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// openPool returns a pool of connections to a database.
func openPool(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// opened returns a session on a database.
func opened(t *testing.T, driver, dsn string) *session {
	t.Helper()
	s, err := Dialect{}.Open(t.Context(), openPool(t, driver, dsn), dialect.Settings{Lease: time.Hour, StatementTimeout: time.Minute, Proof: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Destroy)
	return s.(*session)
}

// A session does not accept a response of another server process.
func TestOtherProcessAnswers(t *testing.T) {
	t.Parallel()
	s := opened(t, "pgx", pgtest.Database(t))
	s.pid++ // as if a pooler had moved it
	var failure *dialect.Failure
	if err := s.Exchange(&dialect.Batch{}); !errors.As(err, &failure) || failure.Kind != dialect.NotExclusive {
		t.Errorf("Exchange: %v, want a Failure of Kind NotExclusive", err)
	}
	if _, err := s.Held(); !errors.As(err, &failure) || failure.Kind != dialect.NotExclusive {
		t.Errorf("Held: %v, want a Failure of Kind NotExclusive", err)
	}
}

// Releases are carried out before tries: a key that is not held and is released
// and tried at once is reported as not held.
func TestReleasesAreCarriedOutFirst(t *testing.T) {
	t.Parallel()
	s := opened(t, "pgx", pgtest.Database(t))
	for _, keys := range [][]dialect.Key{{{Space: dialect.Bigint, ID: 1}, {Space: dialect.Bigint, ID: 2}}, {{Space: dialect.TwoInts, ID: 1}}} {
		b := &dialect.Batch{Release: keys, Try: keys}
		if err := s.Exchange(b); err != nil {
			t.Fatal(err)
		}
		if len(b.NotHeld) != len(keys) || len(b.Busy) != 0 {
			t.Errorf("not held %v, busy %v, of %v", b.NotHeld, b.Busy, keys)
		}
		held, err := s.Held()
		if err != nil {
			t.Fatal(err)
		}
		if len(held) == 0 {
			t.Errorf("of %v nothing is held: it was released after it had been taken", keys)
		}
	}
}

// A session that has been reset has lost its locks without a loss of its
// connection. The next exchange reports that, and not only that a statement has
// failed.
func TestResetEndsSession(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := opened(t, driver, pgtest.Database(t))
			if err := s.Exchange(&dialect.Batch{}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.conn.ExecContext(t.Context(), "DISCARD ALL"); err != nil {
				t.Fatal(err)
			}
			var failure *dialect.Failure
			if err := s.Exchange(&dialect.Batch{}); !errors.As(err, &failure) || failure.Kind != dialect.NotExclusive {
				t.Errorf("Exchange: %v, want a Failure of Kind NotExclusive", err)
			}
		})
	}
}

// A pooler that goes back from transaction mode hands on server processes with
// prepared statements of others. A session that meets one of the name that its
// driver uses ends, and does not fail for ever.
func TestPreparedStatementOfAnotherEndsSession(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			first := opened(t, driver, dsn)
			if err := first.Exchange(&dialect.Batch{}); err != nil {
				t.Fatal(err)
			}
			s := opened(t, driver, dsn)
			const names = "SELECT coalesce(string_agg(quote_ident(name), ',' ORDER BY name), '') FROM pg_prepared_statements"
			var later, now string
			if err := errors.Join(first.conn.QueryRowContext(t.Context(), names).Scan(&later), s.conn.QueryRowContext(t.Context(), names).Scan(&now)); err != nil {
				t.Fatal(err)
			}
			for name := range strings.SplitSeq(later, ",") {
				if !strings.Contains(now, name) {
					if _, err := s.conn.ExecContext(t.Context(), "PREPARE "+name+" AS SELECT 1"); err != nil {
						t.Fatal(err)
					}
				}
			}
			var failure *dialect.Failure
			if err := s.Exchange(&dialect.Batch{}); !errors.As(err, &failure) || failure.Kind != dialect.Gone {
				t.Errorf("Exchange: %v, want a Failure of Kind Gone", err)
			}
		})
	}
}

// A session compiles no statement, whatever the database sets: that would take
// longer than to carry it out.
func TestSessionDoesNotCompile(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	if _, err := openPool(t, "pgx", dsn).Exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET jit = on', current_database()); END $$"); err != nil {
		t.Fatal(err)
	}
	for _, driver := range pgtest.Drivers() {
		var jit string
		if err := opened(t, driver, dsn).conn.QueryRowContext(t.Context(), "SHOW jit").Scan(&jit); err != nil || jit != "off" {
			t.Errorf("%s: jit is %q, %v", driver, jit, err)
		}
	}
}
