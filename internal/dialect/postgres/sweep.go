package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// Sweep deletes rows that expired longer than age ago, at most limit of each
// table. It keeps a heartbeat while its process holds the lock. It reports how
// many rows it has deleted.
//
// Sweep passes over rows that are locked. It waits for at most 100 ms for a
// table that is locked.
func (r Registry) Sweep(ctx context.Context, db *sql.DB, age time.Duration, limit int) (swept int64, err error) {
	return onPool(ctx, db, func(conn *sql.Conn) (swept int64, err error) {
		for table, dead := range map[RegistryTable]string{r.Heartbeats: notHeld, r.Waits: "true"} {
			if !table.Readable() {
				continue
			}
			n, err := rows(ctx, conn, sweepTimeout+table.sweep(age, dead, limit))
			swept += n
			if err != nil && errcode.SQLState(err) != errcode.LockNotAvailable { // which has time until the next sweep
				return swept, err
			}
		}
		return swept, nil
	})
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
