package lockwatch_test

import (
	"context"
	"database/sql"
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

// holder is the one holder of key in s.
func holder(t *testing.T, s *lockwatch.Snapshot, key sqllock.Key) lockwatch.Holder {
	t.Helper()
	holders, _ := s.Find(key)
	if len(holders) != 1 {
		t.Fatalf("holders of key %d: %+v, want one; in\n%v", key.Int64(), holders, s)
	}
	return holders[0]
}

// client is a connection of the test's own, in a transaction, and its server process.
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

// inBackground has tx execute what may wait, until the test ends.
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

// Every advisory lock of the database is there, whoever took it, with the keys as Go has them, and none of another database.
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
		claims := slices.DeleteFunc(slices.Clone(got.Holders), func(h lockwatch.Holder) bool { return !h.SecretCheck })
		if len(claims) != 1 || len(got.Holders) != len(keys)+1+2+1 { // ann's key, the transaction's, the claim
			t.Errorf("%d holders, %d of them claims:\n%v", len(got.Holders), len(claims), got)
		}
		if !slices.IsSortedFunc(got.Holders[:2], func(a, b lockwatch.Holder) int { return int(a.Key.Int64() - b.Key.Int64()) }) {
			t.Error("not in order")
		}
	})
}

// Who waits in the server is there, and who is before it.
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
			return len(waiters) == 2 && !waiters[1].Since.IsZero()
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

// A registration is that of this very server process and this mode, or none.
func TestInspectRegistrations(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := withRegistry(t, driver, dsn)
		s := session(t, driver, dsn)
		own, reused, given := sqllock.Namespace("export").Key("user-1"), sqllock.ID(2), sqllock.Pair(3, 3)
		mustLock(t, s, own)
		mustLock(t, s, reused)
		lock := mustLock(t, s, given)
		beat{session: 77, key: own, age: time.Second, name: "user-1"}.write(t, db)
		beat{session: 77, key: reused, earlier: true}.write(t, db)
		beat{session: 77, key: given}.write(t, db)
		poll(t, db, 77, &reused, sqllock.ID(50), time.Minute)
		poll(t, db, 77, nil, sqllock.ID(51), time.Minute)
		poll(t, db, 78, nil, sqllock.ID(52), -time.Minute) // its process has died
		if holder(t, inspect(t, db), given).Registration == nil {
			t.Error("no registration of a Pair")
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		tx, _ := client(t, db)
		if _, err := tx.Exec("SELECT pg_advisory_xact_lock(3, 3)"); err != nil {
			t.Fatal(err)
		}

		got := inspect(t, db)
		if got.Heartbeats != lockwatch.TableRead || got.Waits != lockwatch.TableRead {
			t.Errorf("the registry was not read: %+v", got)
		}
		r := holder(t, got, own).Registration
		if r == nil || r.Session != 77 || r.Namespace != "export" || r.Name != "user-1" || r.Holder != "host/1" ||
			got.At.Sub(r.Heartbeat) < time.Second || r.Heartbeat.Sub(r.Acquired) != time.Second || r.Expires.Sub(r.Heartbeat) != time.Minute {
			t.Errorf("registration: %+v", r)
		}
		if r := holder(t, got, reused).Registration; r != nil {
			t.Errorf("the registration of another process with that pid: %+v", r)
		}
		if r := holder(t, got, given).Registration; r != nil {
			t.Errorf("the registration of another holder: %+v", r)
		}
		if _, waiters := got.Find(sqllock.ID(50)); len(waiters) != 1 || waiters[0].Poll == nil || !waiters[0].Poll.Holding ||
			waiters[0].Poll.Held != reused || waiters[0].Poll.Session != 77 || waiters[0].Poll.Callers != 2 {
			t.Errorf("who polls and holds: %+v", waiters)
		}
		if _, waiters := got.Find(sqllock.ID(51)); len(waiters) != 1 || waiters[0].Poll.Holding {
			t.Errorf("who polls: %+v", waiters)
		}
		if _, waiters := got.Find(sqllock.ID(52)); len(waiters) != 0 {
			t.Errorf("who died: %+v", waiters)
		}
	})
}

// A shared lock's registration is not that of an exclusive one of the same process.
func TestInspectSharedRegistration(t *testing.T) {
	t.Parallel()
	db := withRegistry(t, "pgx", pgtest.Database(t))
	tx, _ := client(t, db)
	if _, err := tx.Exec("SELECT pg_advisory_xact_lock_shared(4)"); err != nil {
		t.Fatal(err)
	}
	beat{session: 1, key: sqllock.ID(4), shared: true}.write(t, db)
	if h := holder(t, inspect(t, db), sqllock.ID(4)); !h.Shared || h.Registration == nil {
		t.Errorf("%+v", h)
	}
	dbtest.Execute(t, db, "UPDATE latchkey_heartbeats SET shared = false")
	if h := holder(t, inspect(t, db), sqllock.ID(4)); h.Registration != nil {
		t.Errorf("that of the exclusive one: %+v", h)
	}
}

// The tables may be in a schema that no search_path finds, with a name that needs quotes.
func TestInspectOtherSchema(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		const schema = `op's "x"`
		db := withRegistry(t, driver, dsn)
		key := sqllock.ID(1)
		mustLock(t, session(t, driver, dsn), key)
		beat{session: 1, key: key}.write(t, db)
		dbtest.Execute(t, db, `CREATE SCHEMA "op's ""x"""`)
		dbtest.Execute(t, db, `ALTER TABLE latchkey_heartbeats SET SCHEMA "op's ""x"""`)

		if got := inspect(t, db); got.Heartbeats != lockwatch.TableMissing || got.Waits != lockwatch.TableRead {
			t.Errorf("by the search_path: %v, %v", got.Heartbeats, got.Waits)
		}
		got := inspect(t, db, lockwatch.WithSchema(schema))
		if got.Heartbeats != lockwatch.TableRead || got.Waits != lockwatch.TableMissing || holder(t, got, key).Registration == nil {
			t.Errorf("in the schema: %v, %v\n%v", got.Heartbeats, got.Waits, got)
		}
		if got := inspect(t, db, lockwatch.WithSchema("nowhere")); got.Heartbeats != lockwatch.TableMissing {
			t.Errorf("in a schema that is not there: %v", got.Heartbeats)
		}
	})
}

// A table of that name which is another's is named as the reason.
func TestInspectForeignTable(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		dbtest.Execute(t, db, "CREATE TABLE latchkey_heartbeats (id int)")
		if _, err := lockwatch.Inspect(t.Context(), db); err == nil || !strings.Contains(err.Error(), "WithSchema") {
			t.Errorf("%v", err)
		}
	})
}

// A lock may belong to a prepared transaction, which has no process.
func TestInspectPreparedTransaction(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"max_prepared_transactions": "2"}))
	db := dbtest.Open(t, "pgx", cluster.DSN(""))
	for _, statement := range []string{"BEGIN; SELECT pg_advisory_xact_lock(1); PREPARE TRANSACTION 'it'"} {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	if h := holder(t, inspect(t, db), sqllock.ID(1)); h.Process.PID != 0 || h.Shared {
		t.Errorf("%+v", h)
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
