package lockwatch_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

func terminated(f lockwatch.Finding) bool { return f.Terminated }

// Watch ends a session once the function says so, and not before.
func TestWatchTerminates(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	s := session(t, "pgx", dsn, quiet)
	key, other := sqllock.ID(1), sqllock.ID(2)
	lock := mustLock(t, s, key)
	mustLock(t, s, other)
	beat{session: 1, key: key, age: 20 * time.Second}.write(t, db) // late for WithLate alone
	beat{session: 1, key: other, age: 20 * time.Second}.write(t, db)

	soon := lockwatch.WithLate(10 * time.Millisecond)
	silent := startWatch(t, db, soon) // without WithTerminate
	silent.await(1, "the late lock is reported", late(key, false))
	var asked atomic.Int64
	var yes atomic.Bool
	w := startWatch(t, db, soon, lockwatch.WithTerminate(func(f lockwatch.Finding) bool {
		asked.Add(1)
		return f.Holder.Key == key && yes.Load()
	}))
	lockertest.Eventually(t, "Watch asks at every look", func() bool { return asked.Load() > 10 })
	silent.anotherLook(db, sqllock.ID(3))
	if err := lock.Err(); err != nil {
		t.Fatalf("the function has not said yes: %v", err)
	}
	yes.Store(true)
	lockertest.Eventually(t, "the session is ended", func() bool { return errors.Is(lock.Err(), sqllock.ErrLost) })
	w.await(1, "the ended session is reported", terminated)
	w.await(1, "its end is reported", late(key, true))
	lockertest.Eventually(t, "the Session is back", func() bool {
		lock, err := s.TryLock(t.Context(), key)
		return err == nil && lock.Err() == nil
	})
	w.anotherLook(db, sqllock.ID(4))
	w.await(1, "it was ended once", terminated)
	if silent.count(terminated) != 0 {
		t.Error("Watch without WithTerminate ended a session")
	}
}

// If the role lacks a right, the Finding names it, and Watch goes on.
func TestWatchWithoutRights(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	role, asReader := reader(t, "pgx", dsn, db)
	lock := mustLock(t, session(t, "pgx", dsn, quiet), sqllock.ID(1))
	beat{session: 1, key: sqllock.ID(1), age: time.Hour}.write(t, db)
	var asked atomic.Int64
	w := startWatch(t, asReader, lockwatch.WithTerminate(func(lockwatch.Finding) bool { asked.Add(1); return true }))
	w.await(1, "the missing right to read is reported", failed(false, "unreadable"))
	dbtest.Execute(t, db, "GRANT SELECT ON latchkey_heartbeats, latchkey_waits TO "+role)
	w.await(1, "the new right to read is reported", failed(true, "unreadable"))
	w.await(1, "the missing right to see other sessions is reported", failed(false, "pg_read_all_stats"))
	dbtest.Execute(t, db, "GRANT pg_read_all_stats TO "+role)
	w.await(1, "the late lock is reported", late(sqllock.ID(1), false))
	w.await(1, "the missing right to end it is reported", failed(false, "pg_signal_backend"))
	lockertest.Eventually(t, "it goes on", func() bool { return asked.Load() > 10 })
	w.await(1, "it was reported once", failed(false, "pg_signal_backend"))
	w.await(1, "the missing right to delete is reported", failed(false, "DELETE"))
	if err := lock.Err(); err != nil || w.count(terminated) != 0 {
		t.Errorf("the session was ended: %v", err)
	}
}

// With pg_signal_backend Watch ends the session of another ordinary role.
func TestWatchTerminatesWithTheRight(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	admin := withRegistry(t, "pgx", cluster.DSN(""))
	dbtest.Execute(t, admin, "CREATE ROLE service LOGIN")
	dbtest.Execute(t, admin, "CREATE ROLE watcher LOGIN IN ROLE pg_signal_backend, pg_read_all_stats")
	dbtest.Execute(t, admin, "GRANT SELECT ON latchkey_heartbeats, latchkey_waits TO watcher")
	s, err := sqllock.Open(t.Context(), as(t, "pgx", cluster.DSN(""), "service"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lock := mustLock(t, s, sqllock.ID(1))
	beat{session: 1, key: sqllock.ID(1), age: time.Hour}.write(t, admin)
	w := startWatch(t, as(t, "pgx", cluster.DSN(""), "watcher"), lockwatch.WithTerminate(func(lockwatch.Finding) bool { return true }))
	<-lock.Context().Done()
	w.await(1, "the ended session is reported", terminated)
}
