package leasetable

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// leaseTable opens sessions of a lease table, on a new database.
func leaseTable(t *testing.T) (db *sql.DB, open func() *session) {
	t.Helper()
	dsn, err := url.Parse(pgtest.Database(t))
	must(t, err)
	query := dsn.Query()
	query.Set("default_query_exec_mode", "exec")
	dsn.RawQuery = query.Encode()
	return leaseTableOf(t, "pgx", dsn.String())
}

// leaseTableOf is leaseTable with a driver, and the database that dsn names.
func leaseTableOf(t *testing.T, driver, dsn string) (db *sql.DB, open func() *session) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db, func() *session {
		s, err := PostgreSQL{}.Open(t.Context(), db, dialect.Settings{Lease: time.Hour, StatementTimeout: time.Minute})
		must(t, err)
		t.Cleanup(s.Destroy)
		return s.(*session)
	}
}

// isGone reports whether err says that the session has ended.
func isGone(err error) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && failure.Kind == dialect.Gone
}

// must fails the test if a step that the test needs has failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// execute runs a statement on a pool, on a connection or in a transaction.
func execute(t *testing.T, on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	_, err := on.ExecContext(context.Background(), query, args...)
	must(t, err)
}

func mustHold(t *testing.T, s *session, want int) {
	t.Helper()
	keys, err := s.Held()
	must(t, err)
	if len(keys) != want {
		t.Errorf("%d keys are held, want %d", len(keys), want)
	}
}

// A statement that arrives after a later one of its session does nothing. It
// takes no lock and gives none back. That may happen when its connection fails
// while it is on its way.
func TestLateStatement(t *testing.T) {
	t.Parallel()
	_, open := leaseTable(t)
	s := open()
	must(t, s.Exchange(&dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: 1}}}))
	late := s.stamp // what statements that have not arrived yet were made with
	mustHold(t, s, 1)
	for name, call := range map[string]func(*stamp) error{
		"take": func(n *stamp) error {
			return s.tables.exchange(t.Context(), n, &dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: 2}}}, new(reservedTokens))
		},
		"release": func(n *stamp) error {
			return s.tables.exchange(t.Context(), n, &dialect.Batch{Release: []dialect.Key{{Space: dialect.Bigint, ID: 1}}}, new(reservedTokens))
		},
	} {
		stamp := late
		if err := call(&stamp); !errors.Is(err, errExpired) {
			t.Errorf("%s: %v, want errExpired", name, err)
		}
	}
	mustHold(t, s, 1)
}

// A session that has expired never comes back, whichever call notices it first.
// Its keys are free.
func TestExpiredSession(t *testing.T) {
	t.Parallel()
	db, open := leaseTable(t)
	s, other := open(), open()
	must(t, s.Exchange(&dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: 1}, {Space: dialect.TwoInts, ID: 1}}}))
	execute(t, db, "UPDATE latchkey_sessions SET expires = clock_timestamp() WHERE id = "+strconv.FormatInt(s.stamp.id, 10))
	if err := s.Exchange(&dialect.Batch{}); !isGone(err) {
		t.Errorf("Exchange of a session that has expired: %v, want Gone", err)
	}
	if _, err := s.Held(); !isGone(err) {
		t.Errorf("Held: %v, want Gone", err)
	}
	if _, err := s.Token(); !isGone(err) {
		t.Errorf("Token: %v, want Gone", err)
	}
	b := &dialect.Batch{
		Try:   []dialect.Key{{Space: dialect.Bigint, ID: 1}},
		Looks: []dialect.Look{{Keys: []dialect.Key{{Space: dialect.TwoInts, ID: 1}}, Want: 1}},
	}
	must(t, other.Exchange(b))
	if len(b.Busy) > 0 || len(b.Looks[0].Won) != 1 {
		t.Errorf("keys of a session that has expired: busy %v, won %v", b.Busy, b.Looks[0].Won)
	}
}

// reap neither waits for a session that is just being renewed nor deletes it.
func TestReapPassesOverRenewal(t *testing.T) {
	t.Parallel()
	db, open := leaseTable(t)
	s, other := open(), open()
	must(t, s.Exchange(&dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: 1}}}))
	id := strconv.FormatInt(s.stamp.id, 10)
	execute(t, db, "UPDATE latchkey_sessions SET expires = clock_timestamp() WHERE id = "+id)
	tx, err := db.BeginTx(context.Background(), nil)
	must(t, err)
	execute(t, tx, "UPDATE latchkey_sessions SET expires = clock_timestamp() + interval '1 hour' WHERE id = "+id)
	b := &dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: 1}}}
	must(t, other.Exchange(b))
	if len(b.Busy) != 1 {
		t.Error("a key was taken whose session was being renewed")
	}
	must(t, tx.Commit())
	mustHold(t, s, 1)
}

// A failed statement may have taken locks. After it no token comes from a
// reserved block that is older than these locks.
func TestTokensAfterAnError(t *testing.T) {
	t.Parallel()
	db, open := leaseTable(t)
	s := open()
	must(t, s.Exchange(&dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: 1}}}))
	if _, ok := s.ReservedToken(); !ok {
		t.Fatal("an exchange that took a lock has brought no token")
	}
	execute(t, db, "ALTER TABLE latchkey_locks RENAME TO elsewhere")
	err := s.Exchange(&dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: 2}}})
	if err == nil || isGone(err) {
		t.Fatalf("Exchange without its table: %v, want a failure that the session survives", err)
	}
	if token, ok := s.ReservedToken(); ok {
		t.Errorf("token %v is of a block from before the error", token)
	}
	execute(t, db, "ALTER TABLE elsewhere RENAME TO latchkey_locks")
	mustHold(t, s, 1)
}

// A database may lose a commit that it has acknowledged, in a failover to a
// standby that lagged. The session has ended then: a lock of that commit may be
// another session's.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	db, open := leaseTable(t)
	for i, tt := range []struct {
		name string
		call func(*session) error
	}{
		{"heartbeat", func(s *session) error { return s.Exchange(&dialect.Batch{}) }},
		{"take", func(s *session) error {
			return s.Exchange(&dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: -1}}})
		}},
		{"release", func(s *session) error {
			return s.Exchange(&dialect.Batch{Release: []dialect.Key{{Space: dialect.Bigint, ID: -1}}})
		}},
		{"Held", func(s *session) error { _, err := s.Held(); return err }},
		{"Token", func(s *session) error { _, err := s.Token(); return err }},
	} {
		s := open()
		must(t, s.Exchange(&dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: int64(i)}}}))
		id := strconv.FormatInt(s.stamp.id, 10)
		execute(t, db, "UPDATE latchkey_sessions SET statement = statement - 1 WHERE id = "+id)
		execute(t, db, "DELETE FROM latchkey_locks WHERE session = "+id)
		if err := tt.call(s); !isGone(err) {
			t.Errorf("%s after a commit that was lost: %v, want Gone", tt.name, err)
		}
	}
}

func TestMain(m *testing.M) {
	os.Exit(leaktest.Check(pgtest.Main(m)))
}
