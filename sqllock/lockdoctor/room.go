package lockdoctor

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

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
	err = s.read(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'", &name, &server.used)
	if err == nil {
		err = s.read(ctx, `SELECT @@global.max_connections, COALESCE(NULLIF(@@session.max_user_connections, 0), -1),
			(SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1))`, &server.most, &user.most, &user.used)
	}
	if err != nil {
		return "", err
	}
	return s.connections(server, user), nil
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
	return fmt.Sprintf("%d of %d connections of the server are in use", limits[0].used, limits[0].most)
}
