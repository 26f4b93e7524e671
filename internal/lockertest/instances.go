package lockertest

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
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
		return dbtest.Session(t, "pgx", dsn), dbtest.Session(t, "postgres", dsn)
	}},
	{"one session that does not wait for releases", func(t *testing.T) (a, b sqllock.Locker) {
		s := dbtest.Session(t, "pgx", pgtest.Database(t), sqllock.WithAsyncUnlock())
		return s, s
	}},
}
