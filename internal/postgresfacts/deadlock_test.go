package postgresfacts

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A participant is one side of a deadlock. It acquires the lock of first and
// then requests the lock of then, which the other one holds.
type participant struct {
	begin       bool // in a transaction
	first, then string
	keeps       bool // the lock of first outlives an error: it is a session's lock
}

// PostgreSQL detects deadlocks that involve advisory locks. It ends one
// participant's statement with SQLSTATE 40P01, but leaves the session's locks
// of that participant. The other one waits until the victim releases them.
// TestLockTxDeadlock of package sqllock has two transactions.
func TestPostgresFindsDeadlocks(t *testing.T) {
	const row = "SELECT FROM rows WHERE id = 1 FOR UPDATE"
	tests := []struct {
		name string
		a, b participant
	}{
		{
			"two sessions' locks",
			participant{first: "SELECT pg_advisory_lock(1)", then: "SELECT pg_advisory_lock(2)", keeps: true},
			participant{first: "SELECT pg_advisory_lock(2)", then: "SELECT pg_advisory_lock(1)", keeps: true},
		},
		{
			"a session's and a transaction's",
			participant{first: "SELECT pg_advisory_lock(1)", then: "SELECT pg_advisory_lock(2)", keeps: true},
			participant{begin: true, first: "SELECT pg_advisory_xact_lock(2)", then: "SELECT pg_advisory_xact_lock(1)"},
		},
		{
			"a session's, inside a transaction",
			participant{begin: true, first: "SELECT pg_advisory_lock(1)", then: "SELECT pg_advisory_lock(2)", keeps: true},
			participant{begin: true, first: "SELECT pg_advisory_lock(2)", then: "SELECT pg_advisory_lock(1)", keeps: true},
		},
		{
			"a session's and a row's",
			participant{first: "SELECT pg_advisory_lock(1)", then: row, keeps: true},
			participant{begin: true, first: row, then: "SELECT pg_advisory_lock(1)"},
		},
		{
			"a transaction's and a row's",
			participant{begin: true, first: "SELECT pg_advisory_xact_lock(1, 1)", then: row},
			participant{begin: true, first: row, then: "SELECT pg_advisory_xact_lock(1, 1)"},
		},
	}
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		execute(t, open(t, driver, cluster.DSN("")), "CREATE TABLE rows AS SELECT 1 AS id")
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				findsDeadlock(t, open(t, driver, cluster.DSN("")), tt.a, tt.b)
			})
		}
	}, pgtest.WithSettings(map[string]string{"deadlock_timeout": "50ms"}))
}

func findsDeadlock(t *testing.T, db *sql.DB, participants ...participant) {
	t.Helper()
	var conns []*sql.Conn
	var pids []int
	for _, p := range participants {
		conn := connection(t, db)
		if p.begin {
			executeOn(t, conn, "BEGIN")
		}
		executeOn(t, conn, p.first)
		conns, pids = append(conns, conn), append(pids, backendPID(t, conn))
	}
	type result struct {
		participant int
		err         error
	}
	results := make(chan result, len(participants))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // an undetected deadlock fails the test instead of hanging
	defer cancel()
	for i, p := range participants {
		go func() {
			_, err := conns[i].ExecContext(ctx, p.then)
			results <- result{i, err}
		}()
		if i == 0 {
			lockertest.Eventually(t, "the first participant waits", func() bool { return isBlocked(t, db, pids[0]) })
		}
	}
	first := <-results
	if first.err == nil {
		// The victim's lock was its transaction's and is free at once, so the
		// other participant's result may arrive first.
		second := <-results
		if participants[second.participant].keeps {
			t.Error("the other participant did not wait for the lock of the victim's session")
		}
		first, results = second, nil
	}
	if stateOf(first.err) != "40P01" {
		t.Fatalf("the victim got %v, want SQLSTATE 40P01", first.err)
	}
	if victim := first.participant; participants[victim].keeps {
		if !isBlocked(t, db, pids[1-victim]) || len(results) != 0 {
			t.Error("the other participant does not wait for the lock of the victim's session")
		}
		keepsLock(t, db, conns[victim], participants[victim].begin)
		executeOn(t, conns[victim], "SELECT pg_advisory_unlock_all()")
	}
	if results == nil {
		return
	}
	if other := <-results; other.err != nil {
		t.Errorf("the other participant got %v", other.err)
	}
}

// keepsLock checks that the victim of a deadlock still holds its session's
// lock, also after ROLLBACK.
func keepsLock(t *testing.T, db *sql.DB, victim *sql.Conn, inTransaction bool) {
	t.Helper()
	if inTransaction {
		executeOn(t, victim, "ROLLBACK")
	}
	if n := advisoryLocksOf(t, db, backendPID(t, victim)); n != 1 {
		t.Errorf("the victim holds %d locks, want the one of its session", n)
	}
}

// isBlocked reports whether a server process waits for a lock of any kind.
func isBlocked(t *testing.T, db *sql.DB, pid int) bool {
	t.Helper()
	return number(t, db, fmt.Sprintf("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %d", pid)) > 0
}

// advisoryLocksOf counts the advisory locks that a server process holds.
func advisoryLocksOf(t *testing.T, db *sql.DB, pid int) int {
	t.Helper()
	return number(t, db, fmt.Sprintf("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = %d", pid))
}
