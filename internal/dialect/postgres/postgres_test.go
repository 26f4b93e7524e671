package postgres

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Check(pgtest.Main(m)))
}

// openPool returns a pool of connections to a database.
func openPool(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	must(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// must fails the test if a step that the test needs has failed.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// eventually polls until ok returns true. Its limit only ends a hang.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout while waiting for this: %s", what)
		}
	}
}

// execute runs a statement on a pool or on a connection.
func execute(tb testing.TB, on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string, args ...any) {
	tb.Helper()
	_, err := on.ExecContext(context.Background(), query, args...)
	must(tb, err)
}

// patient are settings of sessions that no busy machine ends.
var patient = dialect.Settings{Lease: time.Hour, StatementTimeout: time.Minute, Proof: time.Minute}

// connect returns a session on db.
func connect(tb testing.TB, db *sql.DB) *session {
	tb.Helper()
	s, err := Dialect{}.Open(context.Background(), db, patient)
	must(tb, err)
	tb.Cleanup(s.Destroy)
	return s.(*session)
}

// opened returns a session on a database, with a pool of its own.
func opened(tb testing.TB, driver, dsn string) *session {
	tb.Helper()
	return connect(tb, openPool(tb, driver, dsn))
}

// isOf reports whether err is a Failure of this kind.
func isOf(err error, kind dialect.Kind) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && failure.Kind == kind
}

func exchange(t *testing.T, s dialect.Session, b dialect.Batch) dialect.Batch {
	t.Helper()
	if err := s.Exchange(&b); err != nil {
		t.Fatalf("Exchange: %v", err)
	}
	return b
}

func eachDriver(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, openPool(t, driver, pgtest.Database(t)))
		})
	}
}

func big(ids ...int64) []dialect.Key {
	var keys []dialect.Key
	for _, id := range ids {
		keys = append(keys, dialect.Key{Space: dialect.Bigint, ID: id})
	}
	return keys
}

// pairs returns keys of the two-integer space, each {n, -n}.
func pairs(ns ...int32) []dialect.Key {
	var keys []dialect.Key
	for _, n := range ns {
		keys = append(keys, dialect.Key{Space: dialect.TwoInts, ID: int64(n)<<32 | int64(uint32(-n))})
	}
	return keys
}

// The server frees the locks of a silent session. Only the server can end it
// here: no engine sends heartbeats or closes the connection.
func TestServerEndsSilentSession(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		rival := connect(t, db)
		silent := holdBriefly(t, db, big(1))
		defer silent.Destroy()
		eventually(t, "the key of a silent session is free", func() bool {
			return len(exchange(t, rival, dialect.Batch{Try: big(1)}).Busy) == 0
		})
		if err := silent.Exchange(&dialect.Batch{}); !isOf(err, dialect.Gone) {
			t.Errorf("Exchange after the lease: %v, want a Failure of Kind Gone", err)
		}
	})
}

// holdBriefly returns a session with a short lease that has taken keys. The
// lease is long enough for a busy machine to take them in time.
func holdBriefly(t *testing.T, db *sql.DB, keys []dialect.Key) dialect.Session {
	t.Helper()
	set := patient
	for set.Lease = 300 * time.Millisecond; ; set.Lease *= 2 {
		s, err := Dialect{}.Open(context.Background(), db, set)
		if err == nil {
			if err = s.Exchange(&dialect.Batch{Try: keys}); err == nil {
				return s
			}
			s.Destroy()
		}
		if set.Lease > 30*time.Second {
			t.Fatal(err)
		}
	}
}
