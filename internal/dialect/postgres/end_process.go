package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// EndProcess ends the server process that has this PID and start, and reports
// whether it did. It does so only if at this moment the process still has both, and
// holds an advisory lock of this database or waits for a lock.
//
// One statement asks all this and ends the process. The error is a *Failure with
// the server's SQLSTATE, or that of ctx.
func EndProcess(ctx context.Context, db *sql.DB, pid int, start time.Time) (bool, error) {
	conn, err := dbconn.Live(ctx, db)
	if err != nil {
		return false, dialect.Fail(err)
	}
	defer conn.Close()
	if genuine, err := IsGenuine(ctx, conn); !genuine && (err == nil || dialect.IsStatement(err)) {
		return false, fmt.Errorf("only PostgreSQL's own sessions can be ended: %w", errors.ErrUnsupported)
	}
	return tidied(ctx, conn, func(conn *sql.Conn) (bool, error) { return Holds(ctx, conn, endProcess(pid, start)) })
}

// endProcess returns the condition of EndProcess. It is a CASE, since only a CASE
// promises an order of evaluation. A process never ends itself here.
func endProcess(pid int, start time.Time) string {
	return fmt.Sprintf(`CASE WHEN %[1]d <> pg_catalog.pg_backend_pid()
	AND EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity(%[1]d) AS a WHERE a.backend_start = %[2]s
		AND a.datid = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())))
	AND EXISTS (SELECT FROM pg_catalog.pg_locks WHERE pid = %[1]d AND (locktype = 'advisory' OR NOT granted
		OR pid = ANY (SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.pid)) FROM pg_catalog.pg_locks AS w WHERE NOT w.granted)))
	THEN pg_catalog.pg_terminate_backend(%[1]d) ELSE false END`, pid, moment(start))
}
