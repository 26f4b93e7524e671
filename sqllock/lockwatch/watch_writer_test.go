package lockwatch_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A registeringHolder is another process, whose Session writes heartbeats and holds
// ID(1).
type registeringHolder struct {
	Driver, DSN string
	Lease       time.Duration
}

const registeringHolderRole = "registering holder"

func holdRegistered(ctx context.Context, o registeringHolder) error {
	db, err := sql.Open(o.Driver, o.DSN)
	if err != nil {
		return err
	}
	s, err := sqllock.Open(ctx, db, sqllock.WithRegistry(""), sqllock.WithLease(o.Lease), sqllock.WithLazyOpen())
	if err != nil {
		return err
	}
	if _, err := s.Lock(ctx, sqllock.ID(1)); err != nil { // TryLock has a second at most
		return err
	}
	fmt.Println("holding")
	<-ctx.Done()
	return nil
}

// start starts o and returns its PID when it holds the lock.
func (o registeringHolder) start(t *testing.T) (pid int) {
	t.Helper()
	p, err := subprocess.Start(registeringHolderRole, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if line, err := p.ReadLine(); err != nil {
		t.Fatalf("the holder printed %q: %v", line, err)
	}
	return p.PID()
}

// Watch reports a frozen process as late before the server ends its session, which
// is one lease after its last statement.
func TestLongWatchTellsOfAFrozenProcess(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	frozen := registeringHolder{"pgx", dsn, lease}.start(t)
	lockertest.Eventually(t, "it is registered", func() bool { return registration(t, db, sqllock.ID(1)) != nil })
	w := startWatch(t, db)
	w.anotherLook(db, sqllock.ID(2))
	if n := w.count(late(sqllock.ID(1), false)); n != 0 {
		t.Error("late, while it runs")
	}
	if err := pgtest.FreezeProcess(frozen); err != nil {
		t.Fatal(err)
	}
	w.await(1, "the late heartbeat is reported", late(sqllock.ID(1), false))
	w.await(1, "the server ends it", late(sqllock.ID(1), true))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.findings {
		if f.Holder == nil || f.Holder.Key != sqllock.ID(1) || f.Over || f.Kind != lockwatch.LateHeartbeat {
			continue
		}
		if r := f.Holder.Registration; !f.Since.Equal(r.Heartbeat) || r.Expires.Sub(r.Heartbeat) != lease {
			t.Errorf("late since %v, with the registration %+v", f.Since, r)
		}
	}
}

// While the registry cannot be written, healthy sessions are not late, and Watch
// does not ask whether to end them.
func TestLongWatchSparesWhoCannotRegister(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "postgres", dsn)
	s := session(t, "postgres", dsn, sqllock.WithRegistry(""), sqllock.WithHeartbeat(20*time.Millisecond),
		sqllock.WithLease(10*time.Second), sqllock.WithLazyOpen())
	lock, err := s.Lock(t.Context(), sqllock.ID(1)) // TryLock has a second at most
	if err != nil {
		t.Fatal(err)
	}
	lockertest.Eventually(t, "it is registered", func() bool { return registration(t, db, sqllock.ID(1)) != nil })
	tx, _ := client(t, db)
	if _, err := tx.Exec("LOCK TABLE latchkey_heartbeats IN SHARE MODE"); err != nil { // as CREATE INDEX does
		t.Fatal(err)
	}
	w := startWatch(t, db, lockwatch.WithTerminate(func(f lockwatch.Finding) bool {
		t.Errorf("asked whether to end a healthy session: %+v", f)
		return false
	}))
	w.await(1, "the registry that is not written is reported", ofKind(lockwatch.RegistryNotWritten, false))
	lockertest.Eventually(t, "its heartbeat expires", func() bool {
		return inspect(t, db).At.After(registration(t, db, sqllock.ID(1)).Expires)
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	w.await(1, "the registry that is written again is reported", ofKind(lockwatch.RegistryNotWritten, true))
	if err := lock.Err(); err != nil || w.count(late(sqllock.ID(1), false)) != 0 {
		t.Errorf("the healthy lock: %v; reported late %d times", err, w.count(late(sqllock.ID(1), false)))
	}
}

// Watch does not end a session a second time if it is slow to go.
func TestLongWatchTerminatesOnce(t *testing.T) {
	t.Parallel()
	db := withRegistry(t, "pgx", pgtest.Database(t))
	dbtest.ExecuteOn(t, dbtest.Conn(t, db), "SELECT pg_advisory_lock(1)")
	pid := beat{session: 1, key: sqllock.ID(1), age: time.Hour}.write(t, db)
	if err := pgtest.FreezeProcess(pid); err != nil {
		t.Skip("the server's processes are not this one's to stop: ", err)
	}
	resume := func() { _ = pgtest.ThawProcess(pid) }
	defer resume()
	w := startWatch(t, db, lockwatch.WithTerminate(func(f lockwatch.Finding) bool { return f.Holder.Key == sqllock.ID(1) }))
	w.await(1, "the ended session is reported", terminated)
	w.anotherLook(db, sqllock.ID(2))
	w.anotherLook(db, sqllock.ID(3))
	w.await(1, "it is ended once", terminated)
	resume()
	w.await(1, "it is gone", late(sqllock.ID(1), true))
}
