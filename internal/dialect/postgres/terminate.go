package postgres

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// processOf returns the server process of conn, whose id is pid. It is not
// known behind a pooler, which may give the process to another client, nor to a
// role that may not see it, as after a SET ROLE, or may not call
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
