package lockertest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Instances are the ways in which two servers in a test can stand for two
// instances of one service. New makes the locker of each.
var Instances = []struct {
	Name string
	New  func(t *testing.T) (a, b sqllock.Locker)
}{
	{"memory", func(*testing.T) (a, b sqllock.Locker) {
		m := sqllock.NewMemory()
		return m, m
	}},
	{"two sessions, one of each driver", func(t *testing.T) (a, b sqllock.Locker) {
		dsn := pgtest.Database(t)
		return session(t, "pgx", dsn), session(t, "postgres", dsn)
	}},
	{"one session that does not wait for releases", func(t *testing.T) (a, b sqllock.Locker) {
		s := session(t, "pgx", pgtest.Database(t), sqllock.WithAsyncUnlock())
		return s, s
	}},
}

// session opens a Session with a pool of its own on dsn, as an instance does.
func session(t *testing.T, driver, dsn string, opts ...sqllock.Option) *sqllock.Session {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s, err := sqllock.Open(context.Background(), db, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
