package postgres

import "strings"

// registryQuery finds the registry's tables and the lease tables in the catalog.
// A role that may not use their schema sees them there, too. SCHEMA stands for
// the schema that was named, or the empty string.
//
// Only tables count. A view or a foreign table is code of its owner, which
// would run with the rights of the reader.
//
// A table that the search_path finds is trusted only if this role, the
// database's owner or a superuser owns it. The query asks first whether this
// role owns it, since the other questions need shared catalogs; see
// inspectQuery.
const registryQuery = `SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('server_version_num')::int,
	(SELECT coalesce(pg_catalog.json_object_agg(c.relname, pg_catalog.json_build_object('Name', pg_catalog.format('%I.%I', c.nspname, c.relname),
		'State', CASE WHEN NOT t.trusted THEN 'untrusted' WHEN pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
			THEN 'read' ELSE 'unreadable' END)), '{}')::text
	FROM (SELECT DISTINCT ON (c.relname) c.oid, c.relname, c.relowner, c.relnamespace, n.nspname, n.nspname = SCHEMA AS named
		FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relname IN ('latchkey_heartbeats', 'latchkey_waits', 'latchkey_sessions', 'latchkey_locks') AND c.relkind = 'r'
		AND CASE WHEN n.nspname = SCHEMA THEN true
			WHEN SCHEMA = '' OR c.relname IN ('latchkey_sessions', 'latchkey_locks') THEN pg_catalog.pg_table_is_visible(c.oid) END
		ORDER BY c.relname, named DESC) AS c,
	LATERAL (SELECT CASE WHEN c.named THEN true
		WHEN c.relowner = (SELECT usesysid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())) AND pg_catalog.current_setting('role') = 'none' THEN true
		ELSE pg_catalog.pg_get_userbyid(c.relowner) = current_user
			OR c.relowner = (SELECT datdba FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
			OR (SELECT rolsuper FROM pg_catalog.pg_roles WHERE oid = c.relowner) END AS trusted) AS t)`

// inspectQuery returns the statement that reads everything: pg_locks once, and
// all rows of the tables in one snapshot. Only pg_blocking_pids looks at the
// lock table again, a moment later.
//
// It touches no shared catalog, for which a full lock table has no room. Then
// the inspection is needed most.
func (r Registry) inspectQuery() string {
	heartbeats, waits, leases := noHeartbeats, noWaits, noLeases
	if r.Heartbeats.Readable() {
		heartbeats = "(SELECT * FROM ONLY " + r.Heartbeats.Name + " WHERE " + between("acquired", "heartbeat", "expires") + ")"
	}
	if r.Waits.Readable() {
		waits = "(SELECT * FROM ONLY " + r.Waits.Name + " WHERE key_space IN (0, 1) AND " + between("since", "heartbeat", "expires") + ")"
	}
	if r.Locks.Readable() && r.Sessions.Readable() {
		leases = strings.NewReplacer("LOCKS", r.Locks.Name, "SESSIONS", r.Sessions.Name, "BETWEEN", between("acquired", "expires")).Replace(leasesQuery)
	}
	return strings.NewReplacer("HEARTBEATS", heartbeats, "WAITS", waits, "LEASES", leases).Replace(inspectQuery)
}

// between leaves out rows with times like infinity. One of them would make all
// other rows unreadable.
//
// It is a CASE for the planner, which takes a table without statistics for one
// row after a few comparisons, and then joins 10,000 locks in a nested loop that
// lasts for minutes. Of a CASE it expects half of the rows.
func between(times ...string) string {
	conditions := make([]string, len(times))
	for i, t := range times {
		conditions[i] = t + " BETWEEN '1900-01-01' AND '9000-01-01'"
	}
	return "CASE WHEN " + strings.Join(conditions, " AND ") + " THEN true END"
}

// What stands in for a missing table.
const (
	noHeartbeats = `(SELECT 0::bigint AS process, 0 AS pid, pg_catalog.now() AS backend_start, 0 AS key_space, 0::bigint AS key_id, '' AS namespace, '' AS name,
		'' AS holder, pg_catalog.now() AS acquired, pg_catalog.now() AS expires, pg_catalog.now() AS heartbeat, false AS shared WHERE false)`
	noWaits = `(SELECT 0::bigint AS process, 0 AS key_space, 0::bigint AS key_id, 0 AS held_space, 0::bigint AS held_id, 0 AS waiters,
		pg_catalog.now() AS since, pg_catalog.now() AS heartbeat, pg_catalog.now() AS expires WHERE false)`
	noLeases = `NULL`
)

// leasesQuery reads the lease tables. A lock whose session has no row is free.
const leasesQuery = `(SELECT pg_catalog.json_agg(pg_catalog.json_build_object('Space', l.key_space, 'ID', l.key_id, 'Session', s.id, 'Holder', s.holder,
			'Acquired', l.acquired, 'Expires', s.expires))
		FROM ONLY LOCKS AS l JOIN ONLY SESSIONS AS s ON s.id = l.session WHERE l.key_space IN (0, 1) AND BETWEEN)`

// inspectQuery has the key's halves in classid and objid: see heldQuery. The CASE
// of advisory is there for the planner, as that of between.
const inspectQuery = `WITH
here AS MATERIALIZED (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())),
activity AS MATERIALIZED (SELECT pid, datid, backend_start, application_name, client_addr, state, state_change, wait_event FROM pg_catalog.pg_stat_get_activity(NULL)),
every_lock AS MATERIALIZED (SELECT locktype, database, classid, objid, objsubid, pid, mode, granted, waitstart FROM pg_catalog.pg_locks),
advisory AS MATERIALIZED (
	SELECT coalesce(pid, 0) AS pid, objsubid - 1 AS space, (classid::bigint << 32) | objid::bigint AS id,
		mode = 'ShareLock' AS shared, granted, waitstart
	FROM every_lock WHERE CASE WHEN locktype = 'advisory' THEN database = (SELECT datid FROM here) END),
waiting AS MATERIALIZED (
	SELECT DISTINCT pid FROM every_lock JOIN activity USING (pid) WHERE NOT granted AND datid = (SELECT datid FROM here)),
blocked AS MATERIALIZED (SELECT pid, pg_catalog.pg_blocking_pids(pid) AS by FROM waiting),
polls AS MATERIALIZED (SELECT * FROM WAITS AS w WHERE w.expires > pg_catalog.statement_timestamp()),
sessions AS MATERIALIZED (
	SELECT DISTINCT ON (h.process) h.process, h.pid, h.holder FROM HEARTBEATS AS h JOIN activity AS a ON (a.pid, a.backend_start) = (h.pid, h.backend_start)
	WHERE h.process IN (SELECT process FROM polls) ORDER BY h.process, h.pid)
SELECT pg_catalog.json_build_object(
	'At', pg_catalog.clock_timestamp(),
	'Locks', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('PID', l.pid, 'Space', l.space, 'ID', l.id, 'Shared', l.shared,
			'Granted', l.granted, 'Since', l.waitstart,
			'Registration', CASE WHEN h.process IS NOT NULL THEN pg_catalog.json_build_object('Process', h.process, 'Namespace', h.namespace,
				'Name', h.name, 'Holder', h.holder, 'Acquired', h.acquired, 'Heartbeat', h.heartbeat, 'Expires', h.expires) END,
			'Hidden', l.granted AND a.backend_start IS NULL AND EXISTS (SELECT FROM HEARTBEATS AS h
				WHERE (h.pid, h.key_space, h.key_id, h.shared) = (l.pid, l.space, l.id, l.shared))))
		FROM advisory AS l LEFT JOIN activity AS a USING (pid)
		LEFT JOIN HEARTBEATS AS h ON l.granted
			AND (h.pid, h.backend_start, h.key_space, h.key_id, h.shared) = (l.pid, a.backend_start, l.space, l.id, l.shared)),
	'Blocked', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('PID', pid, 'By', by)) FROM blocked),
	'Polls', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('Process', w.process, 'Space', w.key_space, 'ID', w.key_id, 'HeldSpace', w.held_space,
			'HeldID', w.held_id, 'Waiters', w.waiters, 'Since', w.since, 'Heartbeat', w.heartbeat, 'Expires', w.expires,
			'PID', s.pid, 'Holder', s.holder))
		FROM polls AS w LEFT JOIN sessions AS s USING (process)),
	'Leases', LEASES,
	'Processes', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('PID', pid, 'Start', backend_start, 'Application', application_name,
			'Address', pg_catalog.host(client_addr), 'State', state, 'StateSince', state_change, 'WaitEvent', wait_event))
		FROM activity WHERE pid IN (SELECT pid FROM advisory UNION SELECT pid FROM blocked UNION SELECT pg_catalog.unnest(by) FROM blocked UNION SELECT pid FROM sessions))
)::text`
