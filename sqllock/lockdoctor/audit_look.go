package lockdoctor

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A serverProcess is what the server says of the process of a connection.
type serverProcess struct {
	PID   int64
	Start int64 // microseconds since 1970; 0: hidden from this role
	Here  bool  // it is in the database that is examined
	Locks []serverLock
}

// A serverLock is an advisory lock that the process holds.
type serverLock struct {
	Pair   bool
	ID     int64
	Shared bool
}

// key returns the key as Connection has it.
func (l serverLock) key() sqllock.Key {
	if l.Pair {
		return sqllock.Pair(int32(l.ID>>32), int32(l.ID)) //nolint:gosec // its halves
	}
	return sqllock.ID(l.ID)
}

// lookQuery reads pg_locks once. It touches no shared catalog, for which a full
// lock table has no room.
const lookQuery = `WITH here AS MATERIALIZED (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())),
	held AS MATERIALIZED (SELECT pid, objsubid, (classid::bigint << 32) | objid::bigint AS id, mode FROM pg_catalog.pg_locks
		WHERE locktype = 'advisory' AND granted AND pid = ANY (PIDS) AND database = (SELECT datid FROM here))
	SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('PID', a.pid, 'Here', a.datid = (SELECT datid FROM here),
		'Start', (EXTRACT(epoch FROM a.backend_start) * 1000000)::bigint,
		'Locks', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('Pair', objsubid = 2, 'ID', id, 'Shared', mode = 'ShareLock'))
			FROM held WHERE held.pid = a.pid))), '[]')::text
	FROM pg_catalog.pg_stat_get_activity(NULL) AS a WHERE a.pid = ANY (PIDS)`

// look returns what the server says of the processes of connections, by PID.
func (s *subject) look(ctx context.Context, connections []sqllock.Connection) (map[int64]serverProcess, error) {
	var pids []string
	for _, c := range connections {
		pids = append(pids, strconv.FormatInt(c.PID, 10))
	}
	var text string
	query := strings.ReplaceAll(lookQuery, "PIDS", "'{"+strings.Join(pids, ",")+"}'::int[]")
	if err := s.read(ctx, query, &text); err != nil {
		return nil, err
	}
	var processes []serverProcess
	if err := json.Unmarshal([]byte(text), &processes); err != nil {
		return nil, dialect.ErrNonsense
	}
	byPID := make(map[int64]serverProcess, len(processes))
	for _, p := range processes {
		byPID[p.PID] = p
	}
	return byPID, nil
}
