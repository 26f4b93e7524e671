package lockwatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A Holder has the registration of its own server process and mode, or none. That
// of an exclusive lock is not that of a shared one.
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
		poll(t, db, 77, &reused, sqllock.ID(50), time.Hour)
		poll(t, db, 77, nil, sqllock.ID(51), time.Hour)
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
			got.At.Sub(r.Heartbeat) < time.Second || r.Heartbeat.Sub(r.Acquired) != time.Second || r.Expires.Sub(r.Heartbeat) != time.Hour {
			t.Errorf("registration: %+v", r)
		}
		if r := holder(t, got, reused).Registration; r != nil {
			t.Errorf("the registration of another process with that pid: %+v", r)
		}
		if r := holder(t, got, given).Registration; r != nil {
			t.Errorf("the registration of another holder: %+v", r)
		}
		if _, waiters := got.Find(sqllock.ID(50)); len(waiters) != 1 || waiters[0].Poll == nil || waiters[0].Poll.Held == nil ||
			*waiters[0].Poll.Held != reused || waiters[0].Poll.Session != 77 || waiters[0].Poll.Callers != 2 {
			t.Errorf("the polling caller that holds a key: %+v", waiters)
		}
		if _, waiters := got.Find(sqllock.ID(51)); len(waiters) != 1 || waiters[0].Poll.Held != nil {
			t.Errorf("the polling caller: %+v", waiters)
		}
		if _, waiters := got.Find(sqllock.ID(52)); len(waiters) != 0 {
			t.Errorf("the dead process: %+v", waiters)
		}
		shared := sqllock.ID(4)
		if _, err := tx.Exec("SELECT pg_advisory_xact_lock_shared(4)"); err != nil {
			t.Fatal(err)
		}
		beat{session: 1, key: shared, shared: true}.write(t, db)
		if h := holder(t, inspect(t, db), shared); !h.Shared || h.Registration == nil {
			t.Errorf("the shared lock: %+v", h)
		}
		dbtest.Execute(t, db, "UPDATE latchkey_heartbeats SET shared = false")
		if h := holder(t, inspect(t, db), shared); h.Registration != nil {
			t.Errorf("that of the exclusive one: %+v", h)
		}
	})
}

// The tables may be in a schema outside the search_path, and its name may need
// quotes. If a table has the right name and other columns, the error says so.
func TestInspectOtherSchema(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	const schema = `op's "x"`
	db := withRegistry(t, "postgres", dsn)
	key := sqllock.ID(1)
	mustLock(t, session(t, "postgres", dsn), key)
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
	dbtest.Execute(t, db, "CREATE TABLE latchkey_heartbeats (id int)")
	if _, err := lockwatch.Inspect(t.Context(), db); err == nil || !strings.Contains(err.Error(), "WithSchema") {
		t.Errorf("a foreign table: %v", err)
	}
}

// Inspect skips rows whose times are infinite or out of range. The tables reject
// rows that no Session writes.
func TestInspectOddRows(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "postgres", dsn)
	mustLock(t, session(t, "postgres", dsn), sqllock.ID(1))
	beat{session: 1, key: sqllock.ID(1)}.write(t, db)
	for _, moment := range []string{"'infinity'", "'-infinity'", "'20000-01-01'"} {
		dbtest.Execute(t, db, "UPDATE latchkey_heartbeats SET acquired = "+moment)
		if h := holder(t, inspect(t, db), sqllock.ID(1)); h.Registration != nil {
			t.Errorf("%s: %+v", moment, h.Registration)
		}
	}
	for _, statement := range []string{
		"UPDATE latchkey_heartbeats SET key_space = 2",
		"INSERT INTO latchkey_waits VALUES (1, 2, 1, -1, 0, 1, now(), now(), now())",
		"INSERT INTO latchkey_waits VALUES (1, 0, 1, -2, 0, 1, now(), now(), now())",
	} {
		if _, err := db.Exec(statement); dbtest.State(err) != "23514" {
			t.Errorf("%s: %v", statement, err)
		}
	}
}
