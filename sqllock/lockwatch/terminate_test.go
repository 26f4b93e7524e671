package lockwatch_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// processOf returns the server process that serves conn.
func processOf(t *testing.T, conn *sql.Conn) (p lockwatch.Process) {
	t.Helper()
	if err := conn.QueryRowContext(t.Context(), "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()").Scan(&p.PID, &p.Start); err != nil {
		t.Fatal(err)
	}
	return p
}

// Terminate ends a process that holds an advisory lock, waits, or blocks one that
// waits. It ends no other, and none whose start differs.
func TestTerminateByHand(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, "pgx", pgtest.Database(t))
	dbtest.Execute(t, db, "CREATE TABLE account (id int)")
	terminate := func(p lockwatch.Process) bool {
		ended, err := lockwatch.Terminate(t.Context(), db, p)
		if err != nil {
			t.Fatal(err)
		}
		return ended
	}
	blocker, waiter := dbtest.Conn(t, db), dbtest.Conn(t, db)
	blocking, waiting := processOf(t, blocker), processOf(t, waiter)
	dbtest.ExecuteOn(t, blocker, "BEGIN")
	dbtest.ExecuteOn(t, blocker, "LOCK TABLE account")
	if terminate(blocking) {
		t.Error("a process with a lock that no other waits for was ended")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = waiter.ExecContext(ctx, "SELECT * FROM account")
	}()
	t.Cleanup(func() { cancel(); <-done })
	lockertest.Eventually(t, "the wait", func() bool { return dbtest.WaitForLocks(t, db) == 1 })
	for _, p := range []lockwatch.Process{{PID: waiting.PID}, {Start: waiting.Start}, {PID: waiting.PID, Start: blocking.Start.Add(-time.Hour)}} {
		if terminate(p) {
			t.Errorf("%+v was ended", p)
		}
	}
	if !terminate(blocking) {
		t.Error("a process that blocks another was not ended")
	}
	<-done // the wait is over: the blocker has gone
	if terminate(waiting) {
		t.Error("a process that does not wait any more was ended")
	}
}
