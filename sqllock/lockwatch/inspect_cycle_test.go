package lockwatch_test

import (
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

// patient returns a transaction in which PostgreSQL does not look for deadlocks,
// and the PID of its server process.
func patient(t *testing.T, db *sql.DB, statements ...string) (*sql.Tx, int) {
	t.Helper()
	tx, pid := client(t, db)
	for _, s := range append([]string{"SET LOCAL deadlock_timeout = '1h'"}, statements...) {
		if _, err := tx.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	return tx, pid
}

// awaitCycle waits until Inspect shows a cycle, and returns it. It must be the only
// one, and of these processes, in any order.
func awaitCycle(t *testing.T, db *sql.DB, processes ...int) (c lockwatch.Cycle) {
	t.Helper()
	lockertest.Eventually(t, "the cycle is found", func() bool {
		cycles := inspect(t, db).Cycles()
		if len(cycles) > 1 {
			t.Fatalf("cycles: %v", cycles)
		}
		if len(cycles) == 1 {
			c = cycles[0]
		}
		return len(cycles) == 1
	})
	var got []int
	for _, w := range c.Waits {
		got = append(got, w.PID)
	}
	slices.Sort(got)
	slices.Sort(processes)
	if !slices.Equal(got, processes) {
		t.Errorf("%v, want a cycle of %v", c, processes)
	}
	return c
}

// A cycle of three waits: a caller of a Session polls for the key of a server
// process. That process waits for a row. The process that has locked the row waits
// for the key of the caller. Other callers of the Session are not in the cycle.
func TestCycleThroughSession(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	dbtest.Execute(t, db, "CREATE TABLE account AS SELECT 100 AS balance")
	s := session(t, "pgx", dsn)
	stuck, innocent, wanted := sqllock.Namespace("export").Key("user-1"), sqllock.ID(2), sqllock.Pair(3, 3)
	mustLock(t, s, stuck)
	mustLock(t, s, innocent)
	sessionPID := beat{session: 5, key: stuck}.write(t, db)
	beat{session: 5, key: innocent}.write(t, db)

	writer, writerPID := patient(t, db, "UPDATE account SET balance = 90")
	holder, holderPID := patient(t, db, "SELECT pg_advisory_xact_lock(3, 3)")
	inBackground(t, holder, "UPDATE account SET balance = 80")
	inBackground(t, writer, "SELECT pg_advisory_xact_lock($1)", stuck.Int64())
	lockertest.Eventually(t, "both wait", func() bool {
		got := inspect(t, db)
		return len(got.Waiters) == 1 && len(got.Blocked) == 1
	})

	poll(t, db, 5, &innocent, wanted, time.Hour)
	if cycles := inspect(t, db).Cycles(); len(cycles) != 0 {
		t.Errorf("a cycle, though the caller that polls holds another key: %v", cycles)
	}
	poll(t, db, 5, nil, wanted, time.Hour)
	if c := awaitCycle(t, db, sessionPID, holderPID, writerPID); c.Certain || c.EndsByItself {
		t.Errorf("%v, want a possible one", c)
	}
	poll(t, db, 5, &stuck, wanted, time.Hour)
	if c := awaitCycle(t, db, sessionPID, holderPID, writerPID); !c.Certain || c.EndsByItself || !strings.Contains(c.String(), "waits for a row") {
		t.Errorf("%v, want a certain one", c)
	}
}
