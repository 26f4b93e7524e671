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
// holds an advisory lock of this database or waits for a lock. Unless silent is
// zero, the process must also be in the state in which it has been since then.
//
// One statement asks all this and ends the process. The error is a *Failure with
// the server's SQLSTATE, or that of ctx.
func EndProcess(ctx context.Context, db *sql.DB, pid int, start, silent time.Time) (bool, error) {
	conn, err := dbconn.Live(ctx, db)
	if err != nil {
		return false, dialect.Fail(err)
	}
	defer conn.Close()
	if genuine, err := IsGenuine(ctx, conn); !genuine && (err == nil || dialect.IsStatement(err)) {
		return false, fmt.Errorf("only PostgreSQL's own sessions can be ended: %w", errors.ErrUnsupported)
	}
	return tidied(ctx, conn, func(conn *sql.Conn) (bool, error) { return Holds(ctx, conn, endProcess(pid, start, silent)) })
}

// endProcess returns the condition of EndProcess. It is a CASE, since only a CASE
// promises an order of evaluation. A process never ends itself here.
func endProcess(pid int, start, silent time.Time) string {
	same := "a.backend_start = " + moment(start)
	if !silent.IsZero() {
		same += " AND a.state_change = " + moment(silent)
	}
	return fmt.Sprintf(`CASE WHEN %[1]d <> pg_catalog.pg_backend_pid()
	AND EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity(%[1]d) AS a WHERE %[2]s
		AND a.datid = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())))
	AND EXISTS (SELECT FROM pg_catalog.pg_locks WHERE pid = %[1]d AND (locktype = 'advisory' OR NOT granted
		OR pid = ANY (SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.pid)) FROM pg_catalog.pg_locks AS w WHERE NOT w.granted)))
	THEN pg_catalog.pg_terminate_backend(%[1]d) ELSE false END`, pid, same)
}

// moment returns t as an SQL literal.
func moment(t time.Time) string {
	return dialect.Quoted(t.UTC().Format("2006-01-02 15:04:05.000000+00")) + "::timestamptz"
}
