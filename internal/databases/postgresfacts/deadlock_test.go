package postgresfacts

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
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
	const (
		row = "SELECT NULL FROM rows WHERE id = 1 FOR UPDATE"
		one = "SELECT pg_advisory_lock(1)"
		two = "SELECT pg_advisory_lock(2)"
	)
	tests := []struct {
		name string
		both [2]participant
	}{
		{"two sessions' locks", [2]participant{{first: one, then: two, keeps: true}, {first: two, then: one, keeps: true}}},
		{"a session's and a transaction's", [2]participant{
			{first: one, then: two, keeps: true},
			{begin: true, first: "SELECT pg_advisory_xact_lock(2)", then: "SELECT pg_advisory_xact_lock(1)"},
		}},
		{"a session's, inside a transaction", [2]participant{
			{begin: true, first: one, then: two, keeps: true},
			{begin: true, first: two, then: one, keeps: true},
		}},
		{"a session's and a row's", [2]participant{{first: one, then: row, keeps: true}, {begin: true, first: row, then: one}}},
		{"a transaction's and a row's", [2]participant{
			{begin: true, first: "SELECT pg_advisory_xact_lock(1, 1)", then: row},
			{begin: true, first: row, then: "SELECT pg_advisory_xact_lock(1, 1)"},
		}},
	}
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		dbtest.Execute(t, dbtest.Open(t, driver, dsn), "CREATE TABLE rows AS SELECT 1 AS id")
		for _, tt := range tests {
			for i, victim := range tt.both {
				t.Run(fmt.Sprintf("%s, %d", tt.name, i), func(t *testing.T) {
					findsDeadlock(t, dbtest.Open(t, driver, dsn), tt.both[1-i], victim)
				})
			}
		}
	})
}

// findsDeadlock makes a deadlock. Only the victim looks for one, soon after it
// has begun to wait. The other one waits by then.
func findsDeadlock(t *testing.T, db *sql.DB, other, victim participant) {
	t.Helper()
	waits, falls := dbtest.Conn(t, db), dbtest.Conn(t, db)
	expect(t, waits, "SET deadlock_timeout = '1h'", "")
	expect(t, falls, "SET deadlock_timeout = '10ms'", "")
	for conn, p := range map[*sql.Conn]participant{waits: other, falls: victim} {
		if p.begin {
			expect(t, conn, "BEGIN", "")
		}
		expect(t, conn, p.first, "")
	}
	ended := make(chan string, 1)
	go func() { ended <- result(t, waits, other.then) }()
	isBlocked := func() bool { return dbtest.WaitForLocks(t, db) == 1 }
	lockertest.Eventually(t, "the other participant waits", isBlocked)
	expect(t, falls, victim.then, "40P01")
	if victim.begin {
		expect(t, falls, "ROLLBACK", "")
	}
	if victim.keeps {
		expect(t, falls, "SELECT count(*)"+here+" AND granted AND pid = pg_backend_pid()", "1")
		if !isBlocked() {
			t.Error("the other participant does not wait for the lock of the victim's session")
		}
		expect(t, falls, "SELECT pg_advisory_unlock_all()", "")
	}
	if got := <-ended; got != "" {
		t.Errorf("the other participant got %q", got)
	}
}
