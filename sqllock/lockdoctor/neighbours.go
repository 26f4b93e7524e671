package lockdoctor

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// The checks of what others leave in the database, which no lock depends on.

// What may last for a moment is looked at several times.
const looks, pause = 3, 40 * time.Millisecond

// postgresDurability checks that a crash of the server loses nothing that the
// service counts on. Locks themselves do not outlive a crash.
func postgresDurability(ctx context.Context, s *subject) (fine string, err error) {
	lasting := ""
	for _, t := range s.tables {
		if t.found && t.lasting {
			lasting = t.table
		}
	}
	if lasting == "" {
		return "", skip("there is no table whose rows must outlive a crash of the server")
	}
	if err := s.learn(ctx); err != nil {
		return "", err
	}
	for _, name := range []string{"synchronous_commit", "fsync"} {
		is := s.server.settings[name]
		if words, reset := is.origin(); is.value == "off" {
			s.warn(name+" is off ("+words+"), so a crash of the server takes back the last rows of "+lasting, reset)
		}
	}
	return "commits wait for the disk", nil
}

// postgresRegistry checks the registry for rows that nothing removes.
func postgresRegistry(ctx context.Context, s *subject) (fine string, err error) {
	const many = 1000
	var names []string
	for _, t := range s.tables {
		if t.registry && slices.Contains(t.is.rights, "SELECT") && t.is.flaws == "" {
			names = append(names, t.is.inSQL)
		}
	}
	if len(names) < 2 {
		return "", skip("there is no registry that this role may read")
	}
	var rows, gone int
	err = s.read(ctx, "SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE expires < pg_catalog.now() - interval '1 hour') FROM (SELECT expires FROM ONLY "+
		names[0]+" UNION ALL SELECT expires FROM ONLY "+names[1]+") AS r", &rows, &gone)
	if gone > many {
		const statement = "\nDELETE FROM %s WHERE expires < now() - interval '1 hour';"
		s.warn(counted(gone, "row")+" of the registry are of processes that are gone",
			"Run lockwatch.Watch in one process, which removes them, or:"+fmt.Sprintf(statement, names[0])+fmt.Sprintf(statement, names[1]))
	}
	return fmt.Sprintf("the registry has %s, %d of processes that are gone", counted(rows, "row"), gone), err
}

// postgresNeighbours looks for other users of the key space of advisory locks,
// and for locks that were left behind on a pooled connection. Those are locks of
// server processes that are no Session's by their name, and in no transaction:
// locks of TryTx, LockTx and PerTx end with one.
//
// It looks several times: a Session that connects has such a lock for some
// milliseconds.
func postgresNeighbours(ctx context.Context, s *subject) (fine string, err error) {
	const query = `WITH here AS (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))
			SELECT l.pid, pg_catalog.concat_ws(' ', l.objsubid, l.classid, l.objid)
			FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_get_activity(NULL) AS a USING (pid)
			WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT datid FROM here)
			AND a.application_name NOT LIKE '%latchkey' AND a.backend_start IS NOT NULL AND a.xact_start IS NULL`
	if s.leaseTable {
		return "", skip("the rows of a lease table share no key space with advisory locks")
	}
	type lock struct {
		pid int64
		key string
	}
	var stayed map[lock]bool
	for n := range looks {
		seen := map[lock]bool{}
		err := s.each(ctx, query, func(scan func(...any) error) error {
			var l lock
			err := scan(&l.pid, &l.key)
			if n == 0 || stayed[l] {
				seen[l] = true
			}
			return err
		})
		if err != nil {
			return "", err
		}
		if stayed = seen; len(stayed) == 0 {
			break
		}
		if err := sleep(ctx, pause); err != nil {
			return "", err
		}
	}
	var pids []int64
	for l := range stayed {
		if !slices.Contains(pids, l.pid) {
			pids = append(pids, l.pid)
		}
	}
	if len(pids) > 0 {
		s.warn(fmt.Sprintf("%s, no Session, holds %s outside of a transaction: another program, sqllock.OnConn, or a lock that was left behind on a pooled connection",
			processes(pids), counted(len(stayed), "advisory lock")),
			"Find the program by its process in pg_stat_activity. Move it to a database of its own, or make sure that its numbers are not those of sqllock.ID and Pair.")
	}
	return "no other program holds advisory locks of its session here", nil
}
