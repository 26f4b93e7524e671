package lockwatch_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
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

// A watch is a call of Watch until the test ends. It collects findings and the log.
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

// startWatch starts a Watch that looks at db every ten milliseconds.
func startWatch(t *testing.T, db *sql.DB, opts ...lockwatch.WatchOption) *watch {
	t.Helper()
	w := &watch{t: t}
	opts = append([]lockwatch.WatchOption{lockwatch.WithInterval(10 * time.Millisecond), lockwatch.WithLogger(slog.New(slog.NewTextHandler(w, nil)))}, opts...)
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

// logged returns the log so far.
func (w *watch) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// count returns how many findings match.
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

// await waits until n findings match. More are an error.
func (w *watch) await(n int, what string, is func(lockwatch.Finding) bool) {
	w.t.Helper()
	lockertest.Eventually(w.t, what, func() bool { return w.count(is) >= n })
	if got := w.count(is); got > n {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.t.Errorf("%s: reported %d times, want %d: %+v\n%s", what, got, n, w.findings, w.log.String())
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

// quiet makes a Session send no heartbeat while a test runs.
var quiet = sqllock.WithLease(time.Hour)

// anotherLook waits until w has looked once more, from beginning to end. For that
// look to find something, a transaction of the test holds key, with a late
// heartbeat.
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

// Watch reports the late heartbeat of a held lock once, and its end once. It does
// not report the row of an earlier process with the same PID.
func TestWatchLate(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	s := session(t, "pgx", dsn, quiet)
	stuck, healthy, reused := sqllock.ID(710001), sqllock.ID(710002), sqllock.ID(710003)
	lock := mustLock(t, s, stuck)
	mustLock(t, s, healthy)
	mustLock(t, s, reused)
	pid := beat{session: 1, key: stuck, age: 40 * time.Second, name: "user-1"}.write(t, db)
	beat{session: 1, key: healthy, age: 20 * time.Second}.write(t, db)
	beat{session: 1, key: reused, age: time.Hour, earlier: true}.write(t, db)

	w := startWatch(t, db)
	w.await(1, "the late lock is reported", late(stuck, false))
	w.anotherLook(db, sqllock.ID(1))
	beat{session: 1, key: stuck}.write(t, db)
	w.await(1, "its heartbeat is reported", late(stuck, true))
	beat{session: 1, key: stuck, age: 40 * time.Second}.write(t, db)
	w.await(2, "it is reported again", late(stuck, false))
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	w.await(2, "its release is reported", late(stuck, true))
	w.anotherLook(db, sqllock.ID(2))
	if n := w.count(func(f lockwatch.Finding) bool { return f.Kind != lockwatch.RegistryNotWritten }); n != 8 {
		t.Errorf("%d findings, want 8: %+v", n, w.findings)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.findings[slices.IndexFunc(w.findings, late(stuck, false))]
	over := w.findings[slices.IndexFunc(w.findings, late(stuck, true))]
	if f.Holder.Process.PID != pid || f.Holder.Registration.Name != "user-1" || f.Since.IsZero() || f.Since != over.Since {
		t.Errorf("%+v; over: %+v", f, over)
	}
	if text := w.log.String(); !strings.Contains(text, "pids=["+strconv.Itoa(pid)+"] locks=1") || strings.Contains(text, "71000") {
		t.Errorf("the log:\n%s", text)
	}
}

// Watch reports a cycle of waits, and its end.
func TestWatchCycle(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "postgres", dsn)
	s := session(t, "postgres", dsn, quiet)
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
		t.Fatal("a cycle without a polling caller")
	}
	poll(t, db, 5, &held, wanted, time.Hour)
	w.anotherLook(db, sqllock.ID(4))
	w.anotherLook(db, sqllock.ID(5))
	if n := w.count(ofKind(lockwatch.WaitCycle, false)); n != 0 {
		t.Error("a cycle is reported that only one heartbeat shows")
	}
	lockertest.Eventually(t, "the cycle is reported", func() bool {
		dbtest.Execute(t, db, "UPDATE latchkey_waits SET heartbeat = now()")
		return w.count(ofKind(lockwatch.WaitCycle, false)) == 1
	})
	dbtest.Execute(t, db, "DELETE FROM latchkey_waits")
	w.await(1, "its end is reported", ofKind(lockwatch.WaitCycle, true))
}

// dropRegistry drops the tables one by one: a look may be reading both, in another
// order.
func dropRegistry(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, table := range []string{"latchkey_heartbeats", "latchkey_waits"} {
		dbtest.Execute(t, db, "DROP TABLE "+table)
	}
}

// Where Watch is told to use the registry, missing tables are a failure, and it
// says what to do. Watch goes on without them.
func TestWatchMissingRegistry(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := dbtest.Open(t, "postgres", dsn)
	for _, opt := range []lockwatch.WatchOption{
		lockwatch.WithSchema("public"), lockwatch.WithTerminate(func(lockwatch.Finding) bool { return false }),
	} {
		w := startWatch(t, db, opt)
		w.await(1, "the missing table is reported", failed(false, "lockwatch.Schema"))
		withRegistry(t, "postgres", dsn)
		w.await(1, "the new table is reported", failed(true, "lockwatch.Schema"))
		w.anotherLook(db, sqllock.ID(1))
		dropRegistry(t, db)
	}
}

// Without a registry nothing has failed: the log says once what is not seen. A
// registry that is there is used, and is missed when it is gone.
func TestWatchWithoutRegistry(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := dbtest.Open(t, "pgx", dsn)
	locks := session(t, "pgx", dsn) // before Watch, which would see the lock of its proof
	w := startWatch(t, db, lockwatch.WithLongHeld(time.Microsecond))
	lock := mustLock(t, locks, sqllock.ID(1))
	w.await(1, "it looks", ofKind(lockwatch.HeldLong, false))
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	w.await(1, "it looks again", ofKind(lockwatch.HeldLong, true))
	if n := w.count(failed(false, "")); n != 0 {
		t.Errorf("%d failures are reported, want none", n)
	}
	if n := strings.Count(w.logged(), "level=INFO msg=\"lockwatch: there is no registry"); n != 1 || strings.Contains(w.logged(), "level=ERROR") {
		t.Errorf("the log has %d notes, want one and no error:\n%s", n, w.logged())
	}
	withRegistry(t, "pgx", dsn)
	w.anotherLook(db, sqllock.ID(2))
	dropRegistry(t, db)
	w.await(1, "the tables that are gone are reported", failed(false, "latchkey_waits is missing")) // dropped last: both are gone
}

// While the database is away Watch goes on. It reports once that it is away, and
// once that it is back.
func TestWatchDatabaseAway(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	db := withRegistry(t, "pgx", cluster.DSN(""))
	w := startWatch(t, db)
	w.anotherLook(db, sqllock.ID(1))
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	w.await(1, "the database that is away is reported", failed(false, "unavailable"))
	if err := cluster.StartAgain(); err != nil {
		t.Fatal(err)
	}
	w.await(1, "the database that is back is reported", failed(true, ""))
	w.anotherLook(db, sqllock.ID(2))
}
