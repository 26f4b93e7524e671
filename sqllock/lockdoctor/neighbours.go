package lockdoctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// The checks of what other clients take of the server, and leave there.

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

// Parts of the lock table: above fullPart no Session takes a new key, and above
// calmPart it soon may not.
const fullPart, calmPart = 0.6, 0.5

// postgresLockTable checks the room in the table of locks that all clients of
// the server share. Its questions touch no shared catalog, for which a full table
// has no room.
func postgresLockTable(ctx context.Context, s *subject) (fine string, err error) {
	if s.leaseTable {
		return "", skip("a lease table needs no places in the server's lock table")
	}
	conn, err := s.lend(ctx)
	if err != nil {
		return "", err
	}
	table, _, err := postgres.LockTableOf(ctx, conn)
	_ = conn.Close()
	if err != nil {
		return "", err
	}
	var perTransaction, holder, holds int
	err = s.read(ctx, `SELECT pg_catalog.current_setting('max_locks_per_transaction')::int, coalesce(h.pid, 0), coalesce(h.locks, 0)
		FROM (SELECT 1) AS one LEFT JOIN (SELECT pid, pg_catalog.count(*) AS locks FROM pg_catalog.pg_locks
			WHERE NOT fastpath AND pid IS NOT NULL GROUP BY pid ORDER BY 2 DESC LIMIT 1) AS h ON true`, &perTransaction, &holder, &holds)
	if err != nil {
		return "", err
	}
	size := max(table.Size, 1)
	raise := func(places int) string {
		return fmt.Sprintf("Raise max_locks_per_transaction to at least %d, and restart the server.", (places*perTransaction+size-1)/size)
	}
	used := fmt.Sprintf("%d of the %d places in the server's lock table are in use (%d %%)", table.Used, table.Size, 100*table.Used/size)
	switch part := float64(table.Used) / float64(size); {
	case part > fullPart:
		s.wrong(used+", and above 60 % Sessions deny new keys",
			fmt.Sprintf("End the session that holds the most of them, which are %d:\nSELECT pg_terminate_backend(%d);\n", holds, holder)+raise(2*table.Used))
	case part > calmPart:
		s.warn(used+", and above 60 % Sessions deny new keys", raise(2*table.Used))
	case 2*s.locks > table.Size:
		s.warn(fmt.Sprintf("a fleet that holds %d locks needs twice as many places in the server's lock table, which has %d", s.locks, table.Size), raise(2*s.locks))
	}
	return used, nil
}

// postgresConnections checks how many connections the server, the role and the
// database have left.
func postgresConnections(_ context.Context, s *subject) (fine string, err error) {
	return s.connections(s.server.client, s.server.role, s.server.database), nil
}

// mysqlConnections checks how many connections the server and the user have
// left.
func mysqlConnections(ctx context.Context, s *subject) (fine string, err error) {
	server := connectionLimit{of: "the server", fix: "Raise max_connections, or close connections of other clients."}
	user := connectionLimit{of: "the user", fix: "ALTER USER … WITH MAX_USER_CONNECTIONS 0; with this user, or a limit with room for the fleet"}
	var name string
	own := s.own()
	err = s.read(ctx, `SELECT COALESCE(NULLIF(@@global.max_connections, 0), -1), COALESCE(NULLIF(@@session.max_user_connections, 0), -1),
		(SELECT COUNT(*) FROM information_schema.processlist), (SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1))`,
		&server.most, &user.most, &server.used, &user.used)
	if err == nil { // TiDB has no such status
		err = s.each(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'", func(scan func(...any) error) error { return scan(&name, &server.used) })
	}
	if err != nil {
		return "", err
	}
	server.used -= own
	user.used -= own
	return s.connections(server, user), nil
}

// own returns how many connections of the doctor the next question counts. A
// Session may have them later. They are that of the question, and one that is idle
// since the proof. A pooler may have one for both.
func (s *subject) own() int {
	if s.leaseTable {
		return 1
	}
	return min(max(s.db.Stats().Idle, 1), 2)
}

// A connectionLimit bounds the connections of the server, a role or a database.
// A negative one bounds nothing.
type connectionLimit struct {
	of         string
	most, used int
	fix        string
}

// connections judges limits, of which the first is that of the server.
func (s *subject) connections(limits ...connectionLimit) (fine string) {
	each := s.pool.MaxOpenConnections
	if each == 0 {
		each = 5 // what docs/production.md recommends
	}
	for _, l := range limits {
		switch least := s.needed(); {
		case l.most < 0:
		case l.most < least:
			s.wrong(fmt.Sprintf("%s may have %s, and a Session needs %d", l.of, counted(l.most, "connection"), least), l.fix)
		case l.most-l.used < least:
			s.wrong(fmt.Sprintf("%d of the %d connections that %s may have are in use, so a Session could not reconnect", l.used, l.most, l.of), l.fix)
		case l.most-l.used < l.most/20:
			s.warn(fmt.Sprintf("%d of the %d connections that %s may have are in use", l.used, l.most, l.of), l.fix)
		case s.instances*each > l.most:
			s.warn(fmt.Sprintf("%s whose pools open %d connections each need more than the %d that %s may have", counted(s.instances, "instance"), each, l.most, l.of), l.fix)
		}
	}
	if limits[0].most < 0 {
		return "the server does not limit its connections"
	}
	return fmt.Sprintf("%d of %d connections of the server are in use", limits[0].used, limits[0].most)
}
