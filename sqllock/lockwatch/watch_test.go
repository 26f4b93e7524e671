package lockwatch_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A watch is a call of Watch until the test ends, and what it has told.
type watch struct {
	t *testing.T

	mu       sync.Mutex // protects findings and log
	findings []lockwatch.Finding
	log      bytes.Buffer
}

func (w *watch) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(line)
}

func (w *watch) report(f lockwatch.Finding) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = append(w.findings, f)
}

// startWatch looks at db all the time.
func startWatch(t *testing.T, db *sql.DB, opts ...lockwatch.WatchOption) *watch {
	t.Helper()
	w := &watch{t: t}
	opts = append([]lockwatch.WatchOption{lockwatch.WithInterval(time.Millisecond), lockwatch.WithLogger(slog.New(slog.NewTextHandler(w, nil)))}, opts...)
	ended := errors.New("the test has ended")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error)
	go func() { done <- lockwatch.Watch(ctx, db, w.report, opts...) }()
	t.Cleanup(func() {
		cancel(ended)
		if err := <-done; !errors.Is(err, ended) {
			t.Errorf("Watch: %v", err)
		}
		for _, secret := range []string{"user-1", "host/1", "127.0.0.1", "export"} {
			if strings.Contains(w.log.String(), secret) {
				t.Errorf("the log has %q in it:\n%s", secret, w.log.String())
			}
		}
	})
	return w
}

// count is how often something was told.
func (w *watch) count(is func(lockwatch.Finding) bool) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.findings {
		if is(f) {
			n++
		}
	}
	return n
}

// await waits until something was told n times.
func (w *watch) await(n int, what string, is func(lockwatch.Finding) bool) {
	w.t.Helper()
	lockertest.Eventually(w.t, what, func() bool { return w.count(is) >= n })
	if got := w.count(is); got > n {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.t.Errorf("%s: told %d times, want %d: %+v\n%s", what, got, n, w.findings, w.log.String())
	}
}

func late(key sqllock.Key, over bool) func(lockwatch.Finding) bool {
	return func(f lockwatch.Finding) bool {
		return f.Kind == lockwatch.LateHeartbeat && f.Holder.Key == key && f.Over == over && !f.Terminated
	}
}

func ofKind(kind lockwatch.FindingKind, over bool) func(lockwatch.Finding) bool {
	return func(f lockwatch.Finding) bool { return f.Kind == kind && f.Over == over }
}

func failed(over bool, says string) func(lockwatch.Finding) bool {
	return func(f lockwatch.Finding) bool {
		return f.Kind == lockwatch.WatchFailed && f.Over == over && strings.Contains(f.Err.Error(), says)
	}
}

// quiet has a Session do nothing by itself for as long as a test takes.
var quiet = sqllock.WithLease(time.Hour)

// anything tells of every Finding.
func anything(lockwatch.Finding) bool { return true }

// anotherLook waits until w has looked once more, from beginning to end: what is late for it to find is key, which a
// transaction of the test's own holds.
func (w *watch) anotherLook(db *sql.DB, key sqllock.Key) {
	w.t.Helper()
	tx, _ := client(w.t, db)
	if _, err := tx.Exec("SELECT pg_advisory_xact_lock($1)", key.Int64()); err != nil {
		w.t.Fatal(err)
	}
	beat{session: 999, key: key, age: time.Hour}.write(w.t, db)
	w.await(1, "another look", late(key, false))
	_ = tx.Rollback()
	w.await(1, "the end of another look", late(key, true))
}

// A late heartbeat of a lock that is held is told once, and once that it is over; not what a process of before, with
// the same pid, has left.
func TestWatchLate(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := withRegistry(t, driver, dsn)
		s := session(t, driver, dsn, quiet)
		stuck, healthy, reused := sqllock.ID(710001), sqllock.ID(710002), sqllock.ID(710003)
		lock := mustLock(t, s, stuck)
		mustLock(t, s, healthy)
		mustLock(t, s, reused)
		pid := beat{session: 1, key: stuck, age: 40 * time.Second, name: "user-1"}.write(t, db)
		beat{session: 1, key: healthy, age: 20 * time.Second}.write(t, db)
		beat{session: 1, key: reused, age: time.Hour, earlier: true}.write(t, db)

		w := startWatch(t, db)
		w.await(1, "the late one is told", late(stuck, false))
		w.anotherLook(db, sqllock.ID(1))
		beat{session: 1, key: stuck}.write(t, db)
		w.await(1, "its heartbeat is told", late(stuck, true))
		beat{session: 1, key: stuck, age: 40 * time.Second}.write(t, db)
		w.await(2, "it is told again", late(stuck, false))
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		w.await(2, "its release is told", late(stuck, true))
		w.anotherLook(db, sqllock.ID(2))
		if n := w.count(anything) - w.count(ofKind(lockwatch.RegistryNotWritten, false)) - w.count(ofKind(lockwatch.RegistryNotWritten, true)); n != 8 {
			t.Errorf("%d findings, want 8: %+v", n, w.findings)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		f := w.findings[0]
		if f.Holder.Process.PID != pid || f.Holder.Registration.Name != "user-1" || f.Since.IsZero() || f.Since != w.findings[3].Since {
			t.Errorf("%+v; over: %+v", f, w.findings[3])
		}
		if text := w.log.String(); !strings.Contains(text, "pid="+strconv.Itoa(pid)+" locks=1") || strings.Contains(text, "71000") {
			t.Errorf("the log:\n%s", text)
		}
	})
}

func TestWatchWithLate(t *testing.T) {
	t.Parallel()
	db := withRegistry(t, "pgx", pgtest.Database(t))
	tx, _ := client(t, db)
	if _, err := tx.Exec("SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock(2)"); err != nil {
		t.Fatal(err)
	}
	beat{key: sqllock.ID(1), age: 3 * time.Hour}.write(t, db)
	beat{key: sqllock.ID(2), age: time.Hour, lease: time.Second}.write(t, db) // by default it would be late
	w := startWatch(t, db, lockwatch.WithLate(2*time.Hour))
	w.await(1, "what is older is told, of a process that was at work since", ofKind(lockwatch.RegistryNotWritten, false))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.findings {
		if f.Holder == nil || f.Holder.Key != sqllock.ID(1) || f.Kind != lockwatch.RegistryNotWritten {
			t.Errorf("what is younger, or silent for less, is told: %+v", f)
		}
	}
}

// Who waits for each other is told, and that it is over.
func TestWatchCycle(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := withRegistry(t, driver, dsn)
		s := session(t, driver, dsn, quiet)
		held, wanted := sqllock.ID(1), sqllock.ID(2)
		mustLock(t, s, held)
		beat{session: 5, key: held}.write(t, db)
		tx, _ := client(t, db)
		if _, err := tx.Exec("SELECT pg_advisory_xact_lock(2)"); err != nil {
			t.Fatal(err)
		}
		inBackground(t, tx, "SELECT pg_advisory_xact_lock(1)")

		w := startWatch(t, db)
		w.anotherLook(db, sqllock.ID(3))
		if n := w.count(ofKind(lockwatch.WaitCycle, false)); n != 0 {
			t.Fatal("a cycle, and nobody polls")
		}
		poll(t, db, 5, nil, wanted, time.Minute)
		w.anotherLook(db, sqllock.ID(4))
		w.anotherLook(db, sqllock.ID(5))
		if n := w.count(ofKind(lockwatch.WaitCycle, false)); n != 0 {
			t.Error("a cycle is told that one and the same heartbeat shows")
		}
		pollAgain := func(n int, what string) {
			t.Helper()
			lockertest.Eventually(t, what, func() bool {
				dbtest.Execute(t, db, "UPDATE latchkey_waits SET heartbeat = now()")
				return w.count(ofKind(lockwatch.WaitCycle, false)) == n
			})
		}
		pollAgain(1, "a possible cycle is told")
		poll(t, db, 5, &held, wanted, time.Minute)
		pollAgain(2, "a certain cycle is told")
		w.await(1, "it is not the possible one any more", ofKind(lockwatch.WaitCycle, true))
		dbtest.Execute(t, db, "DELETE FROM latchkey_waits")
		w.await(2, "its end is told", ofKind(lockwatch.WaitCycle, true))
		certain := func(f lockwatch.Finding) bool { return f.Cycle != nil && f.Cycle.Certain }
		if n := w.count(certain); n != 2 {
			t.Errorf("%d findings of a certain cycle, want its beginning and its end", n)
		}
	})
}

// What anybody holds for long is told if asked for.
func TestWatchLongHeld(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := withRegistry(t, driver, dsn)
		s := session(t, driver, dsn)
		registered, unknown := sqllock.ID(1), sqllock.ID(2)
		mustLock(t, s, registered)
		beat{session: 1, key: registered}.write(t, db) // held for a second already
		w := startWatch(t, db, lockwatch.WithLongHeld(900*time.Millisecond))
		long := func(key sqllock.Key, over bool) func(lockwatch.Finding) bool {
			return func(f lockwatch.Finding) bool {
				return f.Kind == lockwatch.HeldLong && f.Holder.Key == key && f.Over == over
			}
		}
		w.await(1, "the registered one is told", long(registered, false))
		lock := mustLock(t, s, unknown)
		w.await(1, "the one that Watch has seen for long is told", long(unknown, false))
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		w.await(1, "its end is told", long(unknown, true))
	})
}

// What is missing is told, with what to do, and Watch goes on without.
func TestWatchMissingRegistry(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		w := startWatch(t, db)
		w.await(1, "that it is missing is told", failed(false, "lockwatch.Schema"))
		withRegistry(t, driver, dsn)
		w.await(1, "that it is there is told", failed(true, "lockwatch.Schema"))
		w.anotherLook(db, sqllock.ID(1))
	})
}

// While the database is away Watch goes on, says so once, and that it is back.
func TestWatchDatabaseAway(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	for _, driver := range pgtest.Drivers() {
		db := withRegistry(t, driver, cluster.DSN(""))
		w := startWatch(t, db)
		w.anotherLook(db, sqllock.ID(1))
		dbtest.Execute(t, db, "CHECKPOINT") // the server does not flush what it commits
		if err := cluster.Kill(); err != nil {
			t.Fatal(err)
		}
		w.await(1, "that it is away is told", failed(false, "unavailable"))
		if err := cluster.StartAgain(); err != nil {
			t.Fatal(err)
		}
		w.await(1, "that it is back is told", failed(true, ""))
		w.anotherLook(db, sqllock.ID(2))
		w.await(1, "it was told once", failed(false, ""))
	}
}
