package postgres

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

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

// terminateQuery passes over processes that have gone, and over others that
// have their ids now.
//
// It also passes over a process that is not named like a session any more. A
// pooler that shows the server's own process ids resets the name before another
// client gets the process.
//
// OFFSET keeps the join before the function with the effect.
const terminateQuery = `SELECT pg_catalog.pg_backend_pid(), coalesce(pg_catalog.string_agg(i::text, ',') FILTER (WHERE pg_catalog.pg_terminate_backend(pid)), '')
	FROM (SELECT u.i, u.pid FROM ROWS FROM (pg_catalog.unnest($1::text::int[]), pg_catalog.unnest($2::text::bigint[])) WITH ORDINALITY AS u (pid, start, i)
		CROSS JOIN LATERAL pg_catalog.pg_stat_get_activity(u.pid) AS a
		WHERE ` + startOf + ` = u.start AND pg_catalog.right(a.application_name, 8) = 'latchkey' OFFSET 0) AS v`

// Terminate implements dialect.Terminator.
func (s *session) Terminate(left []dialect.Process) (there []dialect.Process, err error) {
	pids, starts := make([]string, len(left)), make([]string, len(left))
	for i, p := range left {
		pids[i], starts[i] = strconv.FormatInt(p.PID, 10), strconv.FormatInt(p.Start, 10)
	}
	array := func(numbers []string) string { return "{" + strings.Join(numbers, ",") + "}" }
	var list string
	if err = s.row(terminateQuery, []any{array(pids), array(starts)}, &list); err != nil {
		return nil, dialect.Fail(err)
	}
	for item := range strings.SplitSeq(list, ",") {
		if item == "" {
			continue
		}
		i, err := strconv.Atoi(item)
		if err != nil || i < 1 || i > len(left) {
			return nil, dialect.ErrNonsense
		}
		there = append(there, left[i-1])
	}
	return there, nil
}
