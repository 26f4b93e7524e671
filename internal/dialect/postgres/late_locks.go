package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A LateLock is a lock whose heartbeat is late.
type LateLock struct {
	PID    int
	Start  time.Time // of the process
	Key    dialect.Key
	Shared bool
	Late   time.Duration // the least age of the heartbeat and idle time of the process; 0: half the lease in the row
}

// Terminate ends the server process of l and reports whether it did. It does so
// only if at this moment all of this is true:
//
//   - It is still the same process, and it still holds the lock.
//   - There was no heartbeat since.
//   - The process had nothing else to do since. A heartbeat may be late only
//     because it could not be written.
//
// One statement asks all this and ends the process. The error is a *Failure
// with the server's SQLSTATE, or that of ctx.
func (r Registry) Terminate(ctx context.Context, db *sql.DB, l LateLock) (bool, error) {
	if !r.Heartbeats.Readable {
		return false, nil
	}
	return onPool(ctx, db, func(conn *sql.Conn) (bool, error) { return Holds(ctx, conn, r.terminateIfLate(l)) })
}

// terminateIfLate returns the condition of Terminate. It is a CASE, since only
// a CASE promises an order of evaluation.
func (r Registry) terminateIfLate(l LateLock) string {
	mode := "ExclusiveLock"
	if l.Shared {
		mode = "ShareLock"
	}
	late := "(expires - heartbeat) / 2::double precision" // the operand that PostgreSQL's own operator has
	if l.Late > 0 {
		late = Interval(max(l.Late, time.Microsecond))
	}
	return fmt.Sprintf(`CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND granted AND pid = %[1]d AND mode = '%[3]s' AND objsubid = %[4]d
		AND (classid::bigint << 32) | objid::bigint = (%[5]d)
		AND database = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())))
	AND EXISTS (SELECT FROM ONLY %[6]s AS h JOIN pg_catalog.pg_stat_get_activity(%[1]d) AS a USING (pid, backend_start)
		WHERE backend_start = %[2]s AND key_space = %[7]d AND key_id = (%[5]d) AND shared = %[8]t
		AND greatest(heartbeat, state_change) <= pg_catalog.clock_timestamp() - %[9]s AND (state LIKE 'idle%%' OR state = 'active' AND wait_event = 'ClientRead') AND state_change IS NOT NULL)
	THEN pg_catalog.pg_terminate_backend(%[1]d) ELSE false END`,
		l.PID, moment(l.Start), mode, l.Key.Space+1, l.Key.ID, r.Heartbeats.Name, l.Key.Space, l.Shared, late)
}

// moment returns t as an SQL literal.
func moment(t time.Time) string {
	return dialect.Quoted(t.UTC().Format("2006-01-02 15:04:05.000000+00")) + "::timestamptz"
}

// Sweep deletes rows that expired longer than age ago, at most limit of each
// table. It keeps a heartbeat while its process holds the lock. It reports how
// many rows it has deleted.
//
// Sweep passes over rows that are locked. It waits for at most 100 ms for a
// table that is locked.
func (r Registry) Sweep(ctx context.Context, db *sql.DB, age time.Duration, limit int) (swept int64, err error) {
	return onPool(ctx, db, func(conn *sql.Conn) (int64, error) { return r.sweep(ctx, conn, age, limit) })
}

func (r Registry) sweep(ctx context.Context, conn *sql.Conn, age time.Duration, limit int) (swept int64, err error) {
	for _, s := range []struct {
		table RegistryTable
		dead  string
	}{{r.Heartbeats, notHeld}, {r.Waits, "true"}} {
		if !s.table.Readable {
			continue
		}
		n, err := rows(ctx, conn, sweepTimeout+s.table.sweep(age, s.dead, limit))
		swept += n
		if errcode.SQLState(err) == errcode.LockNotAvailable {
			continue // the next time
		}
		if err != nil {
			return swept, err
		}
	}
	return swept, nil
}

// sweepTimeout bounds the statement after it, in the same transaction.
const sweepTimeout = "SELECT pg_catalog.set_config('lock_timeout', '100ms', true);\n"

// sweep returns the statement that deletes rows, at most limit, that are dead and
// expired longer than age ago.
func (t RegistryTable) sweep(age time.Duration, dead string, limit int) string {
	return fmt.Sprintf(sweepStatement, t.Name, Interval(age), dead, limit)
}

// sweepStatement reads pg_locks once, since that stops all processes that lock.
// ONLY is there since tables that inherit have rows with the same ctid.
const sweepStatement = `WITH held AS MATERIALIZED (
	SELECT l.pid, l.objsubid - 1 AS space, (l.classid::bigint << 32) | l.objid::bigint AS id, l.mode = 'ShareLock' AS shared, a.backend_start
	FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_get_activity(NULL) AS a USING (pid)
	WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())))
DELETE FROM ONLY %[1]s WHERE ctid = ANY (ARRAY(SELECT ctid FROM ONLY %[1]s AS h
	WHERE expires < pg_catalog.statement_timestamp() - %[2]s AND %[3]s LIMIT %[4]d FOR UPDATE SKIP LOCKED))`

// notHeld holds if the process of row h does not hold its lock. Where the start
// of a process is hidden, it counts as the process of h.
const notHeld = `NOT EXISTS (SELECT FROM held WHERE (held.pid, held.space, held.id, held.shared) = (h.pid, h.key_space, h.key_id, h.shared)
	AND coalesce(held.backend_start = h.backend_start, true))`
