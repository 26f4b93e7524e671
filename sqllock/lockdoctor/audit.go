package lockdoctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// How often the audit looks before it believes in a discrepancy, and the longest
// pause before another look. The pauses are random, so that they are not in step
// with callers who take and release a key regularly.
const (
	auditLooks = 12
	auditPause = 40 * time.Millisecond
)

// A discrepancy is one thing in which a Session and the server differ.
type discrepancy struct {
	kind kind
	pid  int64
	key  sqllock.Key // of missing and orphan; zero: one more shared pair than there are secret checks
}

// A kind of discrepancy.
type kind int

const (
	missing kind = iota
	orphan
	gone
)

// kinds says what each kind means. COUNT stands for how many locks or connections
// are concerned, and END for the statements that end their server processes.
var kinds = [...]struct{ thing, reason, fix string }{
	missing: {"lock", "COUNT that a Session believes to hold are not in pg_locks, so others may hold them too",
		"End the connection, so that its holders are told, and find the program that releases locks on it:END"},
	orphan: {"lock", "COUNT on a Session's connection belong to no caller, and keep others out until the connection ends",
		"End the connection; its holders are told, and the Session connects again:END"},
	gone: {"connection", "the database that is examined has no process for COUNT that a Session believes to have",
		"Let the pool that is examined and the Session lead to the same server, and name the same database."},
}

// A serverLock is an advisory lock that a process holds.
type serverLock struct {
	key    sqllock.Key
	shared bool
}

// postgresAudit compares the advisory locks that the server has for each
// connection of the Sessions with the locks that the Sessions believe to hold.
func postgresAudit(ctx context.Context, s *subject) (fine string, err error) {
	switch {
	case len(s.sessions) == 0:
		return "", noSession
	case s.leaseTable:
		return "", skip("the locks of a lease table are not in pg_locks")
	}
	locks, connections := 0, 0
	for _, session := range s.sessions {
		if session.Dialect() != s.dialect {
			continue // the check "session" says so
		}
		for _, c := range session.Connections() {
			locks += len(c.Held) + len(c.Shared)
			if c.PID != 0 {
				connections++
			}
		}
		// A single look proves nothing: a lock may come and go between its moments.
		found, err := stays(ctx, auditLooks, auditPause, func() (map[discrepancy]bool, error) {
			before := session.Connections()
			seen, err := s.look(ctx, before)
			return compare(before, seen, session.Connections()), err
		})
		if err != nil {
			return "", err
		}
		s.report(found)
	}
	if connections == 0 {
		return "", skip("no Session is connected, or their server processes are not known because of a pooler or a lease table")
	}
	return fmt.Sprintf("the server has exactly the locks that the Sessions hold: %s on %s", counted(locks, "lock"), counted(connections, "connection")), nil
}

// look returns what the server says of the processes of connections, by PID. It
// touches no shared catalog, for which a full lock table has no room.
func (s *subject) look(ctx context.Context, connections []sqllock.Connection) (map[int64]map[serverLock]bool, error) {
	const query = `WITH here AS MATERIALIZED (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))
		SELECT a.pid, coalesce(l.objsubid, 0), coalesce((l.classid::bigint << 32) | l.objid::bigint, 0), coalesce(l.mode = 'ShareLock', false)
		FROM pg_catalog.pg_stat_get_activity(NULL) AS a JOIN here AS h ON h.datid = a.datid LEFT JOIN pg_catalog.pg_locks AS l
			ON l.pid = a.pid AND l.locktype = 'advisory' AND l.granted AND l.database = h.datid
		WHERE a.pid = ANY ('{PIDS}'::int[])`
	var pids []string
	for _, c := range connections {
		pids = append(pids, strconv.FormatInt(c.PID, 10))
	}
	seen := map[int64]map[serverLock]bool{}
	return seen, s.each(ctx, strings.Replace(query, "PIDS", strings.Join(pids, ","), 1), func(scan func(...any) error) error {
		var pid, id int64
		var space int
		var shared bool
		if err := scan(&pid, &space, &id, &shared); err != nil {
			return err
		}
		if seen[pid] == nil {
			seen[pid] = map[serverLock]bool{}
		}
		switch space {
		case 1:
			seen[pid][serverLock{sqllock.ID(id), shared}] = true
		case 2:
			seen[pid][serverLock{sqllock.Pair(int32(id>>32), int32(id)), shared}] = true //nolint:gosec // its halves
		}
		return nil
	})
}

// compare returns how the connections of a Session differ from what the server
// said between two looks at them. A lock counts as held if it was so both before
// and after. It counts as known if it was in any way known before or after.
func compare(before []sqllock.Connection, seen map[int64]map[serverLock]bool, after []sqllock.Connection) map[discrepancy]bool {
	found := map[discrepancy]bool{}
	for _, b := range before {
		i := slices.IndexFunc(after, func(a sqllock.Connection) bool { return b.PID == a.PID && b.Start.Equal(a.Start) })
		switch server := seen[b.PID]; {
		case i < 0 || b.PID == 0:
		case server == nil:
			found[discrepancy{kind: gone, pid: b.PID}] = true
		default:
			compareLocks(b, server, after[i], found)
		}
	}
	return found
}

func compareLocks(before sqllock.Connection, server map[serverLock]bool, after sqllock.Connection, found map[discrepancy]bool) {
	lacks := func(before, after []sqllock.Key, shared bool, pid int64) {
		still := setOf(after)
		for _, held := range before {
			if still[held] && !server[serverLock{held, shared}] {
				found[discrepancy{missing, pid, held}] = true
			}
		}
	}
	lacks(before.Held, after.Held, false, before.PID)
	lacks(before.Shared, after.Shared, true, before.PID)
	known := setOf(before.Held, before.Shared, before.Pending, after.Held, after.Shared, after.Pending)
	checks := 0 // shared pairs, as secret checks are: which ones are is not known, only how many
	for lock := range server {
		_, _, pair := lock.key.Pair()
		switch {
		case known[lock.key]:
		case pair && lock.shared:
			checks++
		default:
			found[discrepancy{orphan, before.PID, lock.key}] = true
		}
	}
	if checks > max(before.SecretChecks, after.SecretChecks) {
		found[discrepancy{kind: orphan, pid: before.PID}] = true
	}
}

// setOf returns the keys of all lists.
func setOf(lists ...[]sqllock.Key) map[sqllock.Key]bool {
	set := map[sqllock.Key]bool{}
	for _, keys := range lists {
		for _, k := range keys {
			set[k] = true
		}
	}
	return set
}

// report notes a finding for each kind of discrepancy, without keys.
func (s *subject) report(found map[discrepancy]bool) {
	for k, is := range kinds {
		count, end := 0, map[string]bool{}
		for d := range found {
			if d.kind == kind(k) {
				count++
				end[fmt.Sprintf("\nSELECT pg_terminate_backend(%d);", d.pid)] = true
			}
		}
		if count > 0 {
			statements := strings.Join(slices.Sorted(maps.Keys(end)), "")
			s.wrong(strings.Replace(is.reason, "COUNT", counted(count, is.thing), 1), strings.Replace(is.fix, "END", statements, 1))
		}
	}
}
