package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// fenced opens a database with the fence's table and a table that the work
// writes to.
func fenced(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db := open(t, driver, dsn)
	create(t, db, sqllock.FenceSchema(sqllock.PostgreSQL))
	execute(t, db, "CREATE TABLE work (who text)")
	return db
}

// fencedWork writes the text who behind the fence, and commits whatever the
// fence has returned, as a careless caller would. It returns the fence's error.
func fencedWork(ctx context.Context, t *testing.T, db *sql.DB, lock *sqllock.Lock, who string) error {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	fenceErr := sqllock.Fence(ctx, tx, lock)
	_, writeErr := tx.Exec("INSERT INTO work VALUES ($1)", who)
	commitErr := tx.Commit()
	if fenceErr == nil && (writeErr != nil || commitErr != nil) {
		t.Errorf("%s: past the fence: write %v, commit %v", who, writeErr, commitErr)
	}
	if fenceErr != nil && (writeErr == nil || commitErr == nil) {
		t.Errorf("%s: the fence returned %v; write %v, commit %v, want errors of both", who, fenceErr, writeErr, commitErr)
	}
	return fenceErr
}

// written reports whether the database has a row of this writer.
func written(t *testing.T, db *sql.DB, who string) bool {
	t.Helper()
	return number(t, db, "SELECT count(*) FROM work WHERE who = $1", who) > 0
}

// unaware are options of a Session that notices nothing for minutes, neither by
// its socket nor by a heartbeat.
func unaware() []sqllock.Option {
	return []sqllock.Option{sqllock.WithLease(time.Hour), sqllock.WithSocket(func(any) net.Conn { return nil })}
}

// overtaken returns a lock whose holder does not know that it is lost, and the
// lock of a later holder of the key. Both have been fenced.
func overtaken(t *testing.T, driver, dsn string, db *sql.DB) (stale, later *sqllock.Lock) {
	t.Helper()
	key := sqllock.Namespace("fence").Key("user-1")
	stale = mustLock(t, session(t, driver, dsn, unaware()...), key)
	if err := fencedWork(t.Context(), t, db, stale, "first"); err != nil {
		t.Fatal(err)
	}
	terminate(t, open(t, driver, dsn))
	s := session(t, driver, dsn)
	servesAgain(t, s, key)
	later = mustLock(t, s, key)
	if err := fencedWork(t.Context(), t, db, later, "second"); err != nil {
		t.Fatalf("Fence of the later holder: %v", err)
	}
	return stale, later
}

// The work may be in another database of the server than the locks.
func TestFenceStopsStaleHolder(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		for _, work := range []string{dsn, pgtest.Database(t)} {
			db := fenced(t, driver, work)
			stale, lock := overtaken(t, driver, dsn, db)
			if err := stale.Err(); err != nil {
				t.Fatalf("the stale holder has noticed already: %v", err)
			}
			for range 2 {
				if err := fencedWork(t.Context(), t, db, stale, "stale"); err != sqllock.ErrFenced {
					t.Errorf("Fence of the stale holder: %v, want ErrFenced", err)
				}
			}
			if written(t, db, "stale") {
				t.Error("the stale holder's work is in the database")
			}
			if err := fencedWork(t.Context(), t, db, lock, "second again"); err != nil {
				t.Errorf("Fence of the holder again: %v", err)
			}
			unlock(t, lock)
		}
	})
}

// The connection is watched again after a statement for a token or for a secret
// check, when no statement for locks follows.
func TestWatchedAfterFence(t *testing.T) {
	secret := sqllock.Namespace("fence").Keyed([]byte("one"))
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		rival := session(t, driver, dsn)
		mustLock(t, rival, sqllock.Namespace("fence").Keyed([]byte("other")).Key("ann"))
		for name, speak := range map[string]func(s *sqllock.Session, lock *sqllock.Lock){
			"fence": func(_ *sqllock.Session, lock *sqllock.Lock) {
				if err := fencedWork(t.Context(), t, db, lock, "work"); err != nil {
					t.Fatal(err)
				}
			},
			"disputed secret": func(s *sqllock.Session, _ *sqllock.Lock) {
				if _, err := s.TryLock(t.Context(), secret.Key("ann")); !errors.Is(err, sqllock.ErrNotExclusive) {
					t.Fatalf("TryLock: %v, want ErrNotExclusive", err)
				}
			},
		} {
			s := session(t, driver, dsn, sqllock.WithLease(10*time.Minute)) // only its watch can notice
			// The server may still be freeing the key of the previous case.
			lock := take(t, s, 1, 1)[0]
			lockertest.Eventually(t, "the connection is watched", func() bool { return sqllock.Watching(s) })
			speak(s, lock)
			number(t, db, "SELECT pg_terminate_backend(pid)::int FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"+
				" AND classid = 0 AND objid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
			lockertest.Eventually(t, "the holder is notified after a "+name, func() bool { return lock.Err() == sqllock.ErrLost })
		}
	})
}

// A fenced transaction of a key waits for the one before it. It therefore reads
// what that one has written.
func TestFenceSerializes(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		lock := mustLock(t, session(t, driver, dsn), sqllock.ID(1))
		first := transaction(t, db)
		if err := sqllock.Fence(t.Context(), first, lock); err != nil {
			t.Fatal(err)
		}
		second := transaction(t, db)
		passed := make(chan error, 1)
		go func() { passed <- sqllock.Fence(t.Context(), second, lock) }()
		lockertest.Eventually(t, "the second waits for the first", func() bool {
			return waitForLocks(t, db) == 1
		})
		if _, err := first.Exec("INSERT INTO work VALUES ('first')"); err != nil {
			t.Fatal(err)
		}
		if err := first.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-passed; err != nil {
			t.Fatal(err)
		}
		var n int
		if err := second.QueryRow("SELECT count(*) FROM work").Scan(&n); err != nil || n != 1 {
			t.Errorf("the second sees %d rows, %v; want 1", n, err)
		}
	})
}

// A row of the fence from another system does not count in this one, for example
// from before an upgrade with pg_upgrade. It may be of a later timeline.
func TestFenceReplacesOtherSystem(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		lock := mustLock(t, session(t, driver, dsn), sqllock.ID(1))
		if err := fencedWork(t.Context(), t, db, lock, "first"); err != nil {
			t.Fatal(err)
		}
		execute(t, db, "UPDATE latchkey_fence SET system = system + 1, timeline = timeline + 5, lsn = lsn + 5")
		if err := fencedWork(t.Context(), t, db, lock, "restored elsewhere"); err != nil {
			t.Errorf("Fence: %v", err)
		}
		execute(t, db, "UPDATE latchkey_fence SET lsn = lsn + 1")
		if err := fencedWork(t.Context(), t, db, lock, "stale"); err != sqllock.ErrFenced {
			t.Errorf("Fence: %v, want ErrFenced", err)
		}
		execute(t, db, "UPDATE latchkey_fence SET timeline = timeline + 1, lsn = 1")
		if err := fencedWork(t.Context(), t, db, lock, "older timeline"); err != sqllock.ErrFenced {
			t.Errorf("Fence after a failover: %v, want ErrFenced", err)
		}
	})
}
