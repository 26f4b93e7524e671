package languages

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

const (
	namespace = "export"
	aShortOne = "5" // seconds of lease, where a test waits for its end
	asOnPage  = "10"
	aLongOne  = "100" // where a busy machine must not end it
)

func keyOf(id string) sqllock.Key { return sqllock.Namespace(namespace).Key(id) }

// A Session and a program exclude each other, and each gets the lock when the
// other has given it back.
func TestProgramExcludes(t *testing.T) {
	t.Parallel()
	eachLanguage(t, func(t *testing.T, l language) {
		dsn := pgtest.Database(t)
		s := dbtest.Session(t, "pgx", dsn)
		for _, id := range []string{"user-1", "a:b:", "it's 日本語 🦊"} {
			h := l.start(t, dsn, id, aLongOne)
			h.holds(t)
			if _, err := s.TryLock(t.Context(), keyOf(id)); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("%s: TryLock while the program holds the key: %v, want ErrHeld", id, err)
			}
			dbtest.Unlock(t, dbtest.Lock(t, s, keyOf(id+"x")))
			h.work(t, "a job")
			h.says(t, "done a job")
			if err := h.stdin.Close(); err != nil {
				t.Fatal(err)
			}
			h.ends(t, 0)
			lock := dbtest.Lock(t, s, keyOf(id))
			l.start(t, dsn, id, aLongOne).ends(t, statusHeld, "another session holds the key")
			dbtest.Unlock(t, lock)
		}
	})
}

// waits acquires the key of a program that does not give it back.
func waits(t *testing.T, s *sqllock.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lock, err := s.Lock(ctx, keyOf("user-1"))
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Unlock(t, lock)
}

const holderPID = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// A program whose server process is ended stops its work, and ends.
func TestProgramTerminated(t *testing.T) {
	t.Parallel()
	eachLanguage(t, func(t *testing.T, l language) {
		dsn := pgtest.Database(t)
		db := dbtest.Open(t, "pgx", dsn)
		h := l.start(t, dsn, "user-1", asOnPage)
		h.holds(t)
		dbtest.Number(t, db, "SELECT pg_terminate_backend($1)::int", dbtest.Number(t, db, holderPID))
		h.ends(t, statusLost)
		waits(t, dbtest.Session(t, "pgx", dsn))
	})
}

// The server frees the lock of a program that is frozen for longer than its
// lease. When the program goes on, it does not do the job that waits for it.
func TestLongProgramFrozen(t *testing.T) {
	t.Parallel()
	eachLanguage(t, func(t *testing.T, l language) {
		dsn := pgtest.Database(t)
		s := dbtest.Session(t, "pgx", dsn)
		h := l.start(t, dsn, "user-1", aShortOne)
		h.holds(t)
		if err := pgtest.FreezeProcess(h.cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		waits(t, s)
		h.work(t, "late")
		if err := pgtest.ThawProcess(h.cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		h.ends(t, statusLost)
	})
}

// A program takes no lock on a standby or through a pooler.
func TestProgramRejects(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	standby, err := cluster.Standby()
	if err != nil {
		t.Fatal(err)
	}
	dsns := map[string]string{"standby": standby.DSN("")}
	for _, mode := range []string{"transaction", "session"} {
		bouncer, err := cluster.PgBouncer(mode, 2)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = bouncer.Close() })
		dsns[mode] = bouncer.DSN("")
	}
	eachLanguage(t, func(t *testing.T, l language) {
		for name, dsn := range dsns {
			h := l.start(t, dsn, "user-1", asOnPage)
			h.ends(t, 1, "connect to the primary itself")
			if t.Failed() {
				t.Fatalf("on a %s", name)
			}
		}
	})
}
