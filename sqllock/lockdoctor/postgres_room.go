package lockdoctor

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// Parts of the lock table: above fullPart no Session takes a new key, and above
// calmPart it soon may not.
const fullPart, calmPart = 0.6, 0.5

// postgresLockTable checks the room in the table of locks that all clients of
// the server share.
func postgresLockTable(ctx context.Context, s *subject) Result {
	if s.leaseTable {
		return skipped("a lease table needs no places in the server's lock table")
	}
	conn, err := dbconn.Lend(ctx, s.db)
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	table, _, err := postgres.LockTableOf(ctx, conn)
	if err != nil {
		return failed(err)
	}
	var perTransaction int
	if err := conn.QueryRowContext(ctx, "SELECT pg_catalog.current_setting('max_locks_per_transaction')::int").Scan(&perTransaction); err != nil {
		return failed(err)
	}
	raise := func(places int) string {
		slots := max(table.Size/max(perTransaction, 1), 1)
		return fmt.Sprintf("Raise max_locks_per_transaction to at least %d, and restart the server.", (places+slots-1)/slots)
	}
	percent := 100 * table.Used / max(table.Size, 1)
	used := fmt.Sprintf("%d of the %d places in the server's lock table are in use (%d %%)", table.Used, table.Size, percent)
	switch part := float64(table.Used) / float64(max(table.Size, 1)); {
	case part > fullPart:
		return wrong(used+", and above 60 % Sessions deny new keys", "End the session that holds the most locks: see \"too many locks are held\" in the runbook.\n"+raise(2*table.Used))
	case part > calmPart:
		return warning(used+", and above 60 % Sessions deny new keys", raise(2*table.Used))
	case 2*s.locks > table.Size:
		return warning(fmt.Sprintf("a fleet that holds %d locks needs twice as many places in the server's lock table, which has %d", s.locks, table.Size), raise(2*s.locks))
	}
	return passed("%s", used)
}

// connectionsQuery counts connections of clients. Ordinary roles see the rows
// of other roles, too, with their database and user.
const connectionsQuery = `WITH activity AS MATERIALIZED (SELECT pid, datid, usesysid FROM pg_catalog.pg_stat_get_activity(NULL) WHERE datid <> 0),
	me AS (SELECT datid, usesysid FROM activity WHERE pid = pg_catalog.pg_backend_pid())
	SELECT pg_catalog.current_setting('max_connections')::int,
		CASE WHEN r.rolsuper THEN 0 ELSE pg_catalog.current_setting('superuser_reserved_connections')::int
			+ coalesce(nullif(pg_catalog.current_setting('reserved_connections', true), '')::int, 0) END,
		(SELECT pg_catalog.count(*) FROM activity),
		CASE WHEN r.rolsuper THEN -1 ELSE r.rolconnlimit END, (SELECT pg_catalog.count(*) FROM activity WHERE usesysid = me.usesysid),
		CASE WHEN r.rolsuper THEN -1 ELSE d.datconnlimit END, (SELECT pg_catalog.count(*) FROM activity WHERE datid = me.datid)
	FROM me JOIN pg_catalog.pg_roles AS r ON r.oid = me.usesysid JOIN pg_catalog.pg_database AS d ON d.oid = me.datid`

// postgresConnections checks how many connections the server, the role and the
// database have left.
func postgresConnections(ctx context.Context, s *subject) Result {
	var most, reserved, used, ofRole, byRole, ofDatabase, byDatabase int
	if err := s.read(ctx, connectionsQuery, &most, &reserved, &used, &ofRole, &byRole, &ofDatabase, &byDatabase); err != nil {
		return failed(err)
	}
	findings := s.connectionFindings(connectionLimit{"the server", most - reserved, used, "Raise max_connections and restart the server, or close connections of other clients."})
	if ofRole >= 0 {
		findings = append(findings, s.connectionFindings(connectionLimit{"the role", ofRole, byRole, "ALTER ROLE CURRENT_USER CONNECTION LIMIT -1; or a limit with room for the fleet"})...)
	}
	if ofDatabase >= 0 {
		findings = append(findings, s.connectionFindings(connectionLimit{"the database", ofDatabase, byDatabase, "ALTER DATABASE … CONNECTION LIMIT -1; with the name of this database"})...)
	}
	return worst(passed("%d of %d connections of the server are in use", used, most-reserved), findings)
}

// A connectionLimit bounds the connections of the server, a role or a database.
type connectionLimit struct {
	of         string
	most, used int
	fix        string
}

// connectionFindings judges one limit.
func (s *subject) connectionFindings(l connectionLimit) []Result {
	least := 2 // of a Session that proves that locks exclude
	if s.needsOneConnection() {
		least = 1
	}
	each := s.pool.MaxOpenConnections
	if each == 0 {
		each = 5 // what docs/production.md recommends
	}
	switch {
	case l.most < least:
		return []Result{wrong(fmt.Sprintf("%s may have %s, and a Session needs %d", l.of, counted(l.most, "connection"), least), l.fix)}
	case l.most-l.used < least:
		return []Result{wrong(fmt.Sprintf("%d of the %d connections that %s may have are in use, so a Session could not reconnect", l.used, l.most, l.of), l.fix)}
	case l.most-l.used < l.most/20:
		return []Result{warning(fmt.Sprintf("%d of the %d connections that %s may have are in use", l.used, l.most, l.of), l.fix)}
	case s.instances*each > l.most:
		return []Result{warning(fmt.Sprintf("%s whose pools open %d connections each need more than the %d that %s may have", counted(s.instances, "instance"), each, l.most, l.of), l.fix)}
	}
	return nil
}
