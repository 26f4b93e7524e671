package postgresfacts

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// This file tests common misconceptions about PostgreSQL's advisory locks, on
// plain connections without sqllock. docs/deadlocks.md lists them.

// lock_timeout ends a wait with SQLSTATE 55P03. It has no effect on a try-lock,
// which returns false without an error, however short the timeout.
func TestLockTimeoutBoundsWaitsNotTries(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		holder, other := connection(t, db), connection(t, db)
		executeOn(t, holder, "SELECT pg_advisory_lock(1)")
		executeOn(t, other, "SET lock_timeout = '1ms'")
		for _, wait := range []string{"pg_advisory_lock(1)", "pg_advisory_xact_lock(1)", "pg_advisory_lock_shared(1)"} {
			if _, err := other.ExecContext(t.Context(), "SELECT "+wait); stateOf(err) != "55P03" {
				t.Errorf("%s: %v, want SQLSTATE 55P03", wait, err)
			}
		}
		for _, try := range []string{"pg_try_advisory_lock(1)", "pg_try_advisory_xact_lock(1)"} {
			expectBool(t, other, "SELECT "+try, false)
		}
		expectBool(t, other, "SELECT pg_try_advisory_lock(2)", true)
	})
}

// 55P03 does not mean that no lock was granted. If a statement acquires two
// locks and fails at the second, the session keeps the first. A transaction
// loses it.
func TestLockTimeoutLeavesWhatWasGranted(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		holder, other := connection(t, db), connection(t, db)
		executeOn(t, holder, "SELECT pg_advisory_lock(2)")
		executeOn(t, other, "SET lock_timeout = '1ms'")
		for left, function := range []string{"pg_advisory_xact_lock", "pg_advisory_lock"} { // in this order: the second function leaves one lock
			_, err := other.ExecContext(t.Context(), "SELECT "+function+"(1), "+function+"(2)")
			if stateOf(err) != "55P03" {
				t.Fatalf("%s: %v, want SQLSTATE 55P03", function, err)
			}
			if n := advisoryLocksOf(t, db, backendPID(t, other)); n != left {
				t.Errorf("%s: %d locks remain, want %d", function, n, left)
			}
		}
	})
}

// Only its own session can unlock a session's lock. Unlock in another session
// returns false with a warning, and does nothing. To free the lock from
// outside, end the session.
func TestOnlyItsSessionUnlocks(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		holder, watchdog := connection(t, db), connection(t, db)
		executeOn(t, holder, "SELECT pg_advisory_lock(1)")
		expectBool(t, watchdog, "SELECT pg_advisory_unlock(1)", false)
		executeOn(t, watchdog, "SELECT pg_advisory_unlock_all()")
		expectBool(t, watchdog, "SELECT pg_try_advisory_lock(1)", false)
		pid := backendPID(t, holder)
		if n := advisoryLocksOf(t, db, pid); n != 1 {
			t.Errorf("the holder has %d locks, want 1", n)
		}
		number(t, db, "SELECT pg_terminate_backend($1::int)::int", pid)
		lockertest.Eventually(t, "the ended session holds no lock", func() bool { return advisoryLocksOf(t, db, pid) == 0 })
		expectBool(t, watchdog, "SELECT pg_try_advisory_lock(1)", true)
	})
}

// A transaction's try-lock without BEGIN returns true to every caller, because
// the transaction is the single statement.
func TestTransactionsTryLockWithoutBeginLimitsNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		a, b := connection(t, db), connection(t, db)
		for range 3 {
			expectBool(t, a, "SELECT pg_try_advisory_xact_lock(1)", true)
			expectBool(t, b, "SELECT pg_try_advisory_xact_lock(1)", true)
		}
		if n := advisoryLocks(t, db); n != 0 {
			t.Errorf("%d locks in the database", n)
		}
		executeOn(t, a, "BEGIN")
		expectBool(t, a, "SELECT pg_try_advisory_xact_lock(1)", true)
		expectBool(t, b, "SELECT pg_try_advisory_xact_lock(1)", false)
		executeOn(t, a, "ROLLBACK")
	})
}

// SET LOCAL without BEGIN does not change the settings of the following
// statements.
func TestSetLocalWithoutBeginDoesNothing(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		conn := connection(t, open(t, driver, dsn))
		executeOn(t, conn, "SET LOCAL lock_timeout = '1234ms'")
		expectBool(t, conn, "SELECT current_setting('lock_timeout') = '1234ms'", false)
		executeOn(t, conn, "BEGIN")
		executeOn(t, conn, "SET LOCAL lock_timeout = '1234ms'")
		expectBool(t, conn, "SELECT current_setting('lock_timeout') = '1234ms'", true)
		executeOn(t, conn, "ROLLBACK")
	})
}

// A session may acquire its own lock again, and then needs as many unlocks. On
// a connection from a pool, a second request's try-lock therefore returns true.
// A Session of package sqllock rejects it: see package lockertest.
func TestOwnSessionMayTakeAgain(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		conn, other := connection(t, db), connection(t, db)
		expectBool(t, conn, "SELECT pg_try_advisory_lock(1)", true)
		expectBool(t, conn, "SELECT pg_try_advisory_lock(1)", true)
		expectBool(t, conn, "SELECT pg_advisory_unlock(1)", true)
		expectBool(t, other, "SELECT pg_try_advisory_lock(1)", false)
		expectBool(t, conn, "SELECT pg_advisory_unlock(1)", true)
		expectBool(t, other, "SELECT pg_try_advisory_lock(1)", true)
	})
}
