package lockwatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// Watch removes the rows of dead processes, long after their end, and no others.
func TestWatchSweeps(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "postgres", dsn)
	s := session(t, "postgres", dsn, quiet)
	mustLock(t, s, sqllock.ID(1))
	mustLock(t, s, sqllock.ID(7))
	beat{key: sqllock.ID(7), age: 2 * time.Hour, earlier: true}.write(t, db) // of another process with this pid
	const anHourAgo = "now() - interval '1 hour'"
	row := `INSERT INTO latchkey_heartbeats SELECT 1, $1::int, now(), 0, i, '', NULL, 'host/1', now(), ` + anHourAgo + `, now() FROM generate_series($2::int, $3::int) AS i`
	dbtest.Execute(t, db, row, 1<<30, 1, 2500)                // more than one sweep removes
	beat{key: sqllock.ID(1), age: 2 * time.Hour}.write(t, db) // late, but held
	dbtest.Execute(t, db, row, 1<<30, 9001, 9001)             // another transaction has it locked
	dbtest.Execute(t, db, strings.Replace(row, anHourAgo, "now() - interval '1 minute'", 1), 1<<30, 9002, 9002)
	poll(t, db, 1, nil, sqllock.ID(1), -time.Hour)
	poll(t, db, 1, nil, sqllock.ID(2), -time.Minute)
	tx, _ := client(t, db)
	if _, err := tx.Exec("SELECT FROM latchkey_heartbeats WHERE key_id = 9001 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	w := startWatch(t, db)
	lockertest.Eventually(t, "the dead are removed", func() bool {
		return dbtest.Number(t, db, "SELECT count(*) FROM latchkey_heartbeats WHERE key_id NOT IN (1, 9001, 9002)") == 0
	})
	w.anotherLook(db, sqllock.ID(-5))
	if n := dbtest.Number(t, db, "SELECT count(*) FROM latchkey_heartbeats WHERE (key_id = 1 AND pid < 1 << 30) OR key_id IN (9001, 9002)"); n != 3 {
		t.Errorf("%d rows are left of a held lock, a locked one and a fresh one, want 3", n)
	}
	if n := dbtest.Number(t, db, "SELECT count(*) FROM latchkey_waits"); n != 1 {
		t.Errorf("%d waits are left, want the fresh one", n)
	}
	if n := w.count(ofKind(lockwatch.WatchFailed, false)); n != 0 {
		t.Errorf("it failed: %+v", w.findings)
	}
}

// A sweep skips a table that is locked and reports nothing. A role that cannot see
// server processes leaves the rows of held locks alone.
func TestWatchSweepsWithRespect(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	role, asReader := reader(t, "pgx", dsn, db)
	dbtest.Execute(t, db, "GRANT SELECT, UPDATE, DELETE ON latchkey_heartbeats, latchkey_waits TO "+role)
	mustLock(t, session(t, "pgx", dsn, quiet), sqllock.ID(1))
	beat{key: sqllock.ID(1), age: 2 * time.Hour}.write(t, db)
	dbtest.Execute(t, db, `INSERT INTO latchkey_heartbeats SELECT 1, 1 << 30, now(), 0, 2, '', NULL, 'host/1', now(), now() - interval '1 hour', now()`)
	poll(t, db, 1, nil, sqllock.ID(1), -time.Hour)

	tx, _ := client(t, db)
	if _, err := tx.Exec("LOCK TABLE latchkey_heartbeats IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	first := startWatch(t, asReader)
	lockertest.Eventually(t, "the other table is swept", func() bool { return dbtest.Number(t, db, "SELECT count(*) FROM latchkey_waits") == 0 })
	if n := first.count(failed(false, "55P03")) + first.count(failed(false, "unavailable")); n != 0 {
		t.Errorf("it says that it failed: %+v", first.findings)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	startWatch(t, asReader)
	lockertest.Eventually(t, "the dead row is removed", func() bool {
		return dbtest.Number(t, db, "SELECT count(*) FROM latchkey_heartbeats WHERE key_id = 2") == 0
	})
	if n := dbtest.Number(t, db, "SELECT count(*) FROM latchkey_heartbeats"); n != 1 {
		t.Error("the row of a held lock was removed by a role that cannot see whose it is")
	}
}
