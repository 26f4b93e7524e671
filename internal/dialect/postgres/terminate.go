package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// processOf returns the server process of conn, whose id is pid. It is not known
// behind a pooler, which may give the process to another client. Nor is it known
// to a role that may not see it, as after a SET ROLE, or that may not call
// pg_stat_get_activity.
func processOf(ctx context.Context, conn *sql.Conn, pid int64) (dialect.Process, error) {
	if handshake, known := dbconn.HandshakePID(conn); !known || handshake != pid {
		return dialect.Process{}, nil
	}
	var start sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT "+startOf+" FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) AS a").Scan(&start)
	if errcode.SQLState(err) == errcode.Forbidden { // the locks need no more than the role has
		return dialect.Process{}, nil
	}
	if err != nil || !start.Valid {
		return dialect.Process{}, err
	}
	return dialect.Process{PID: pid, Start: start.Int64}, nil
}

// startOf is the start of the process in row a, in microseconds since 1970.
const startOf = "(extract(epoch FROM a.backend_start) * 1000000)::bigint"

// Process implements dialect.Backend.
func (s *session) Process() dialect.Process { return s.process }

// terminateQuery ends the process $1 if it began at $2 and is named like a session.
// A pooler that shows the server's own process ids resets the name before another
// client gets the process.
const terminateQuery = `SELECT pg_backend_pid(), coalesce((SELECT CASE WHEN ` + startOf + ` = $2 AND right(a.application_name, 8) = 'latchkey'
	THEN pg_terminate_backend(a.pid) END FROM pg_stat_get_activity($1) AS a), false)`

// Terminate implements dialect.Terminator.
func (s *session) Terminate(left []dialect.Process) (there []dialect.Process, err error) {
	for _, p := range left {
		var ended bool
		if err := s.row(terminateQuery, []any{p.PID, p.Start}, &ended); err != nil {
			return nil, dialect.Fail(err)
		}
		if ended {
			there = append(there, p)
		}
	}
	return there, nil
}

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
	if err := Tidy(ctx, conn); err != nil {
		return false, dialect.Fail(err)
	}
	ended, err := Holds(ctx, conn, endProcess(pid, start, silent))
	return ended, dialect.Fail(err)
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
