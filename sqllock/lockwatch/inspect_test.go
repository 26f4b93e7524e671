package lockwatch_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// holder returns the holder of key in s, which must be the only one.
func holder(t *testing.T, s *lockwatch.Snapshot, key sqllock.Key) lockwatch.Holder {
	t.Helper()
	holders, _ := s.Find(key)
	if len(holders) != 1 {
		t.Fatalf("holders of key %d: %+v, want one; in\n%v", key.Int64(), holders, s)
	}
	return holders[0]
}

// client begins a transaction. It returns the PID of the server process too.
func client(t *testing.T, db *sql.DB) (*sql.Tx, int) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	var pid int
	if err := tx.QueryRow("SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return tx, pid
}

// inBackground makes tx execute a statement that may wait, until the test ends.
func inBackground(t *testing.T, tx *sql.Tx, statement string, args ...any) {
	t.Helper()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		_, _ = tx.ExecContext(ctx, statement, args...)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// A Snapshot has every advisory lock of the database, whichever program holds it,
// and no lock of another database. The keys are those that Go programs use.
func TestInspectHolders(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		named := sqllock.Namespace("export").Key("user-1")
		keys := []sqllock.Key{named, sqllock.ID(-3), sqllock.ID(0), sqllock.Pair(-7, 8), sqllock.Pair(7, -8)}
		s := session(t, driver, dsn)
		for _, key := range keys {
			mustLock(t, s, key)
		}
		elsewhere := session(t, driver, pgtest.Database(t))
		mustLock(t, elsewhere, sqllock.ID(99))
		mustLock(t, s, sqllock.Namespace("payout").Keyed([]byte("secret")).Key("ann"))
		tx, pid := client(t, db)
		for _, statement := range []string{"SELECT pg_advisory_xact_lock_shared(5)", "SELECT pg_advisory_xact_lock(6)"} {
			if _, err := tx.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		got := inspect(t, db)
		if got.Heartbeats != lockwatch.TableMissing || got.Waits != lockwatch.TableMissing || got.At.IsZero() || got.Hidden != 0 {
			t.Errorf("it does not say that there is no registry: %+v", got)
		}
		for _, key := range keys {
			h := holder(t, got, key)
			if !strings.HasSuffix(h.Process.Application, "latchkey") || h.Process.PID == 0 || h.Process.Start.IsZero() ||
				h.Process.State != "idle" || h.Process.Address != "127.0.0.1" || h.Shared || h.SecretCheck || h.Registration != nil {
				t.Errorf("holder of key %d: %+v", key.Int64(), h)
			}
		}
		if h := holder(t, got, sqllock.ID(5)); !h.Shared || h.Process.PID != pid || h.Process.State != "idle in transaction" {
			t.Errorf("the transaction's shared lock: %+v", h)
		}
		if h := holder(t, got, sqllock.ID(6)); h.Shared {
			t.Errorf("the transaction's lock: %+v", h)
		}
		if key := holder(t, got, named).Key; key != sqllock.ID(named.Int64()) {
			t.Errorf("the key is not as ID makes it: %+v", key)
		}
		checks := slices.DeleteFunc(slices.Clone(got.Holders), func(h lockwatch.Holder) bool { return !h.SecretCheck })
		if len(checks) != 1 || len(got.Holders) != len(keys)+1+2+1 { // ann's key, the transaction's, the check
			t.Errorf("%d holders, %d of them checks:\n%v", len(got.Holders), len(checks), got)
		}
		if !slices.IsSortedFunc(got.Holders[:2], func(a, b lockwatch.Holder) int { return cmp.Compare(a.Key.Int64(), b.Key.Int64()) }) {
			t.Error("not in order")
		}
	})
}

// A process that waits in the server is there, with the processes ahead of it.
func TestInspectWaiters(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		s := session(t, driver, dsn)
		mustLock(t, s, sqllock.Pair(1, -2))
		holderPID := holder(t, inspect(t, db), sqllock.Pair(1, -2)).Process.PID
		first, firstPID := client(t, db)
		inBackground(t, first, "SELECT pg_advisory_xact_lock(1, -2)")
		var waiters []lockwatch.Waiter
		lockertest.Eventually(t, "the first waits", func() bool {
			_, waiters = inspect(t, db).Find(sqllock.Pair(1, -2))
			return len(waiters) == 1 && !waiters[0].Since.IsZero() // waitstart comes a moment later
		})
		second, secondPID := client(t, db)
		inBackground(t, second, "SELECT pg_advisory_xact_lock_shared(1, -2)")
		lockertest.Eventually(t, "the second waits", func() bool {
			_, waiters = inspect(t, db).Find(sqllock.Pair(1, -2))
			return len(waiters) == 2 && !waiters[0].Since.IsZero() && !waiters[1].Since.IsZero()
		})
		if w := waiters[0]; w.Process.PID != firstPID || w.Shared || w.Poll != nil || !slices.Equal(w.BlockedBy, []int{holderPID}) {
			t.Errorf("the first: %+v", w)
		}
		before := []int{holderPID, firstPID}
		slices.Sort(before)
		if w := waiters[1]; w.Process.PID != secondPID || !w.Shared || !slices.Equal(w.BlockedBy, before) {
			t.Errorf("the second: %+v", w)
		}
		if cycles := inspect(t, db).Cycles(); len(cycles) != 0 {
			t.Errorf("cycles in a queue: %v", cycles)
		}
	})
}

// A prepared transaction may hold a lock, and has no server process.
func TestInspectPreparedTransaction(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"max_prepared_transactions": "2"}))
	db := dbtest.Open(t, "pgx", cluster.DSN(""))
	dbtest.Execute(t, db, "BEGIN; SELECT pg_advisory_xact_lock(1); PREPARE TRANSACTION 'it'")
	if h := holder(t, inspect(t, db), sqllock.ID(1)); h.Process.PID != 0 || h.Shared {
		t.Errorf("%+v", h)
	}
}

// On a standby Inspect fails and says why. If the server is away the error is
// ErrUnavailable, without an address.
func TestInspectWrongServer(t *testing.T) {
	t.Parallel()
	standby, err := pgtest.New(t).Standby()
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range pgtest.Drivers() {
		if _, err := lockwatch.Inspect(t.Context(), dbtest.Open(t, driver, standby.DSN(""))); !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "standby") {
			t.Errorf("%s: on a standby: %v", driver, err)
		}
	}
	if err := standby.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := lockwatch.Inspect(t.Context(), dbtest.Open(t, "pgx", standby.DSN(""))); !errors.Is(err, sqllock.ErrUnavailable) || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("stopped: %v", err)
	}
}

// Inspect joins 20,000 locks with their registrations by hash, which takes a
// second. A nested loop takes a minute. The planner chooses when the driver
// prepares the statement, and the table is still empty then.
func TestLongInspectManyLocks(t *testing.T) {
	t.Parallel()
	const n = 20000
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	db.SetMaxOpenConns(1)
	inspect(t, db)
	inspect(t, db) // on the same connection
	conn := dbtest.Conn(t, dbtest.Open(t, "pgx", dsn))
	dbtest.ExecuteOn(t, conn, fmt.Sprintf("SELECT pg_advisory_lock(i) FROM generate_series(1, %d) AS i", n))
	dbtest.ExecuteOn(t, conn, fmt.Sprintf(`INSERT INTO latchkey_heartbeats (process, pid, backend_start, key_space, key_id, namespace, holder, acquired, heartbeat, expires)
		SELECT 1, pid, backend_start, 0, i, 'export', 'web-1', now(), now(), now() + interval '1 hour'
		FROM generate_series(1, %d) AS i, pg_stat_get_activity(pg_backend_pid())`, n))
	began, registered := time.Now(), 0
	for _, h := range inspect(t, db).Holders {
		if h.Registration != nil {
			registered++
		}
	}
	if took := time.Since(began); registered != n || took > 30*time.Second {
		t.Errorf("%d locks are registered, want %d; Inspect took %v", registered, n, took)
	}
}

func TestInspectMisuse(t *testing.T) {
	t.Parallel()
	for name, misuse := range map[string]func(){
		"Inspect":       func() { _, _ = lockwatch.Inspect(t.Context(), nil) },
		"Watch":         func() { _ = lockwatch.Watch(t.Context(), nil, nil) },
		"WithSchema":    func() { lockwatch.WithSchema("") },
		"WithInterval":  func() { lockwatch.WithInterval(0) },
		"WithLate":      func() { lockwatch.WithLate(0) },
		"WithLongHeld":  func() { lockwatch.WithLongHeld(-1) },
		"WithTerminate": func() { lockwatch.WithTerminate(nil) },
		"WithLogger":    func() { lockwatch.WithLogger(nil) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "lockwatch: "+name) {
					t.Errorf("%s: %q", name, text)
				}
			}()
			misuse()
		}()
	}
}
