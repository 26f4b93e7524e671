package lockdoctor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// neighboursQuery lists the advisory locks of this database whose server
// process is no Session's by its name, and is in no transaction. Locks of TryTx,
// LockTx and PerTx end with a transaction, so they are not among them.
const neighboursQuery = `WITH here AS (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))
	SELECT coalesce(pg_catalog.json_agg(pg_catalog.concat_ws(' ', l.pid, l.objsubid, l.classid, l.objid)), '[]')::text
	FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_get_activity(NULL) AS a USING (pid)
	WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT datid FROM here)
	AND a.application_name NOT LIKE '%latchkey' AND a.backend_start IS NOT NULL AND a.xact_start IS NULL`

// postgresNeighbours looks for other users of the key space of advisory locks,
// and for locks that were left behind on a pooled connection.
//
// It looks several times: a Session that connects has such a lock for some
// milliseconds.
func postgresNeighbours(ctx context.Context, s *subject) Result {
	const (
		looks = 3
		pause = 30 * time.Millisecond
	)
	if s.leaseTable {
		return skipped("the rows of a lease table share no key space with advisory locks")
	}
	var stayed map[string]bool
	for look := range looks {
		var text string
		if err := s.read(ctx, neighboursQuery, &text); err != nil {
			return failed(err)
		}
		var locks []string
		if err := json.Unmarshal([]byte(text), &locks); err != nil {
			return failed(dialect.ErrNonsense)
		}
		seen := map[string]bool{}
		for _, l := range locks {
			seen[l] = look == 0 || stayed[l]
			if !seen[l] {
				delete(seen, l)
			}
		}
		if stayed = seen; len(stayed) == 0 {
			return passed("no other program holds advisory locks of its session here")
		}
		if err := sleep(ctx, pause); err != nil {
			return failed(err)
		}
	}
	processes := map[string]bool{}
	for l := range stayed {
		pid, _, _ := strings.Cut(l, " ")
		processes[pid] = true
	}
	return warning(fmt.Sprintf("%s hold %s outside of a transaction and are no Sessions: another program, sqllock.OnConn, or a lock that was left behind on a pooled connection",
		counted(len(processes), "server process"), counted(len(stayed), "advisory lock")),
		"Find them with lockwatch.Inspect. Move another program to a database of its own, or make sure that its numbers are not those of sqllock.ID and Pair.")
}

// sleep returns after d, or with the error of ctx when that ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
