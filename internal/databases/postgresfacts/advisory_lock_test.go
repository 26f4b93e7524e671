package postgresfacts

import "testing"

// This file tests common misconceptions about PostgreSQL's advisory locks, on
// plain connections without sqllock. docs/deadlocks.md lists them.

// lock_timeout ends a wait with SQLSTATE 55P03. It has no effect on a try-lock,
// which returns false without an error, however short the timeout.
func TestLockTimeoutBoundsWaitsNotTries(t *testing.T) {
	play(t,
		a("SELECT pg_advisory_lock(1)", ""),
		b("SET lock_timeout = '1ms'", ""),
		b("SELECT pg_advisory_lock(1)", "55P03"),
		b("SELECT pg_advisory_xact_lock(1)", "55P03"),
		b("SELECT pg_advisory_lock_shared(1)", "55P03"),
		b("SELECT pg_try_advisory_lock(1)", "false"),
		b("SELECT pg_try_advisory_xact_lock(1)", "false"),
		b("SELECT pg_try_advisory_lock(2)", "true"),
	)
}

// 55P03 does not mean that no lock was granted. If a statement acquires two
// locks and fails at the second, the session keeps the first. A transaction
// loses it.
func TestLockTimeoutLeavesWhatWasGranted(t *testing.T) {
	const own = "SELECT count(*)" + here + " AND pid = pg_backend_pid()"
	play(t,
		a("SELECT pg_advisory_lock(2)", ""),
		b("SET lock_timeout = '1ms'", ""),
		b("SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock(2)", "55P03"),
		b(own, "0"),
		b("SELECT pg_advisory_lock(1), pg_advisory_lock(2)", "55P03"),
		b(own, "1"),
	)
}

// Only its own session can unlock a session's lock. Unlock in another session
// returns false with a warning, and does nothing. To free the lock from
// outside, end the session.
func TestOnlyItsSessionUnlocks(t *testing.T) {
	play(t,
		a("SELECT pg_advisory_lock(1)", ""),
		b("SELECT pg_advisory_unlock(1)", "false"),
		b("SELECT pg_advisory_unlock_all()", ""),
		b("SELECT pg_try_advisory_lock(1)", "false"),
		b("SELECT pg_terminate_backend(pid)"+here, "true"),
		b("SELECT pg_advisory_lock(1)", ""), // it waits for the end of a
	)
}

// A transaction's try-lock without BEGIN returns true to every caller, because
// the transaction is the single statement.
func TestTransactionsTryLockWithoutBeginLimitsNothing(t *testing.T) {
	const try = "SELECT pg_try_advisory_xact_lock(1)"
	play(t,
		a(try, "true"),
		b(try, "true"),
		a("SELECT count(*)"+here, "0"),
		a("BEGIN", ""),
		a(try, "true"),
		b(try, "false"),
	)
}

// SET LOCAL without BEGIN does not change the settings of the following
// statements.
func TestSetLocalWithoutBeginDoesNothing(t *testing.T) {
	play(t,
		a("SET LOCAL lock_timeout = '1234ms'", ""),
		a("SELECT current_setting('lock_timeout')", "0"),
		a("BEGIN", ""),
		a("SET LOCAL lock_timeout = '1234ms'", ""),
		a("SELECT current_setting('lock_timeout')", "1234ms"),
	)
}

// A session may acquire its own lock again, and then needs as many unlocks. On
// a connection from a pool, a second request's try-lock therefore returns true.
// A Session of package sqllock rejects it: see package lockertest.
func TestOwnSessionMayTakeAgain(t *testing.T) {
	play(t,
		a("SELECT pg_try_advisory_lock(1)", "true"),
		a("SELECT pg_try_advisory_lock(1)", "true"),
		a("SELECT pg_advisory_unlock(1)", "true"),
		b("SELECT pg_try_advisory_lock(1)", "false"),
		a("SELECT pg_advisory_unlock(1)", "true"),
		b("SELECT pg_try_advisory_lock(1)", "true"),
	)
}
