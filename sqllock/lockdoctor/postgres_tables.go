package lockdoctor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// postgresTablesQuery describes the tables of our names that the search_path
// finds, or those of the registry in a schema. The owner of a table is trusted
// as lockwatch trusts it.
const postgresTablesQuery = `SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('Table', c.relname, 'Schema', n.nspname,
	'Qualified', CASE WHEN t.named THEN pg_catalog.format('%%I.%%I', n.nspname, c.relname) END,
	'Kind', c.relkind::text, 'Unlogged', c.relpersistence = 'u', 'Hidden', pg_catalog.row_security_active(c.oid),
	'Trusted', t.named OR pg_catalog.pg_get_userbyid(c.relowner) = current_user
		OR c.relowner = (SELECT datdba FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
		OR (SELECT rolsuper FROM pg_catalog.pg_roles WHERE oid = c.relowner),
	'Columns', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object('Name', attname, 'Type', pg_catalog.format_type(atttypid, NULL)))
		FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
	'Key', EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = c.oid AND contype = 'p'),
	'Constraints', (SELECT pg_catalog.json_agg(conname) FROM pg_catalog.pg_constraint WHERE conrelid = c.oid AND contype = 'c' AND convalidated),
	'Rights', (SELECT pg_catalog.json_agg(r) FROM pg_catalog.unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
		WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, r)))), '[]')::text
	FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace,
	LATERAL (SELECT %[1]s <> '' AND c.relname IN ('latchkey_heartbeats', 'latchkey_waits') AS named) AS t
	WHERE c.relname IN (%[2]s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
	AND CASE WHEN t.named THEN n.nspname = %[1]s ELSE pg_catalog.pg_table_is_visible(c.oid) END`

// findPostgresTables describes the tables of our names.
func (s *subject) findPostgresTables(ctx context.Context) (found []foundTable, err error) {
	var names []string
	for _, t := range tablesOf(s.dialect) {
		names = append(names, dialect.Quoted(t.table))
	}
	var text string
	if err := s.read(ctx, fmt.Sprintf(postgresTablesQuery, dialect.Quoted(s.schema), strings.Join(names, ", ")), &text); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return nil, dialect.ErrNonsense
	}
	return found, nil
}

// postgresTables compares the tables with those that this version makes. Lease
// tables in two schemas would be two sets of locks.
func postgresTables(ctx context.Context, s *subject) Result {
	found, err := s.findPostgresTables(ctx)
	if err != nil {
		return failed(err)
	}
	schemas := map[string]bool{}
	for _, f := range found {
		for _, t := range tablesOf(s.dialect) {
			if t.name == leases && t.table == f.Table {
				schemas[f.Schema] = true
			}
		}
	}
	result := s.tablesResult(found)
	if len(schemas) > 1 {
		return worst(result, append(onlyFinding(result), wrong("the lease tables are in more than one schema of the search_path", "Leave those of one schema, and give all services the same search_path.")))
	}
	return result
}

// onlyFinding returns r as a finding, and nothing if r is none.
func onlyFinding(r Result) []Result {
	if r.State == OK || r.State == Skipped {
		return nil
	}
	return []Result{r}
}

// postgresRightsQuery asks for rights that belong to no table: to make tables
// where the search_path begins, and to draw the tokens of Fence. It counts the
// holders of locks that this role may not look at.
const postgresRightsQuery = `SELECT coalesce(pg_catalog.has_schema_privilege((pg_catalog.current_schemas(false))[1], 'CREATE'), false),
	pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
		AND pg_catalog.has_function_privilege('pg_catalog.pg_logical_emit_message(boolean, text, text)', 'EXECUTE'),
	(SELECT pg_catalog.count(DISTINCT pid) FROM pg_catalog.pg_locks JOIN pg_catalog.pg_stat_get_activity(NULL) AS a USING (pid)
		WHERE locktype = 'advisory' AND a.backend_start IS NULL
		AND database = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())))`

// signatures is postgresRightsQuery for PostgreSQL 17 and newer, where
// pg_logical_emit_message has another parameter.
var signatures = strings.NewReplacer("pg_logical_emit_message(boolean, text, text)", "pg_logical_emit_message(boolean, text, text, boolean)")

// postgresRights checks the rights of the pool's role.
func postgresRights(ctx context.Context, s *subject) Result {
	found, err := s.findPostgresTables(ctx)
	if err != nil {
		return failed(err)
	}
	var version int
	if err := s.read(ctx, "SELECT pg_catalog.current_setting('server_version_num')::int", &version); err != nil {
		return failed(err)
	}
	query := postgresRightsQuery
	if version >= 170000 {
		query = signatures.Replace(query)
	}
	var (
		mayCreate, mayDraw bool
		hidden             int
	)
	if err := s.read(ctx, query, &mayCreate, &mayDraw, &hidden); err != nil {
		return failed(err)
	}
	findings := s.missingRights(found, func(rights, table string) string {
		return fmt.Sprintf("GRANT %s ON %s TO …; with this role, and USAGE on the schema", rights, table)
	})
	leaseTables := 0
	hasFence := false
	for _, f := range found {
		hasFence = hasFence || f.Table == fenceTable
		for _, t := range tablesOf(sqllock.PostgreSQL) {
			if t.name == leases && t.table == f.Table {
				leaseTables++
			}
		}
	}
	if s.leaseTable && leaseTables < len(leaseTableNames()) && !mayCreate {
		findings = append(findings, wrong("the lease tables are missing, and the role may not create them",
			"Run the statements of sqllock.Schema(sqllock.PostgreSQL) in a migration, and grant the role SELECT, INSERT, UPDATE and DELETE."))
	}
	if hasFence && !mayDraw {
		findings = append(findings, wrong("the role may not draw the tokens of Fence",
			"GRANT EXECUTE ON FUNCTION pg_control_system, pg_logical_emit_message(boolean, text, text) TO …; with this role (PostgreSQL 17 and newer: and a further boolean)"))
	}
	if hidden > 0 {
		findings = append(findings, warning("the role may not see since when, and for whom, "+counted(hidden, "server process")+" of other roles hold locks",
			"GRANT pg_read_all_stats TO …; with this role, if it is to inspect the locks of others"))
	}
	return worst(passed("the role has the rights that are needed"), findings)
}

// leaseTableNames returns the names of the lease tables of PostgreSQL.
func leaseTableNames() (names []string) {
	for _, t := range tablesOf(sqllock.PostgreSQL) {
		if t.name == leases {
			names = append(names, t.table)
		}
	}
	return names
}

// postgresDurability checks that a crash of the server loses nothing that the
// service counts on. Locks themselves do not outlive a crash.
func postgresDurability(ctx context.Context, s *subject) Result {
	found, err := s.findPostgresTables(ctx)
	if err != nil {
		return failed(err)
	}
	lasting := ""
	for _, t := range tablesOf(s.dialect) {
		for _, f := range found {
			if t.lasting && f.Table == t.table {
				lasting = t.table
			}
		}
	}
	if lasting == "" {
		return skipped("there is no table whose rows must outlive a crash of the server")
	}
	var commit, sync setting
	err = s.read(ctx, `SELECT c.setting, c.source, f.setting, f.source FROM pg_catalog.pg_settings AS c, pg_catalog.pg_settings AS f
		WHERE c.name = 'synchronous_commit' AND f.name = 'fsync'`, &commit.Value, &commit.Source, &sync.Value, &sync.Source)
	if err != nil {
		return failed(err)
	}
	commit.Name, sync.Name = "synchronous_commit", "fsync"
	var findings []Result
	for _, is := range []setting{commit, sync} {
		if is.Value == "off" {
			findings = append(findings, warning(is.Name+" is off ("+is.origin()+"), so a crash of the server takes back the last rows of "+lasting, is.reset()))
		}
	}
	return worst(passed("commits wait for the disk"), findings)
}

// postgresRegistry checks the registry for rows that nothing removes.
func postgresRegistry(ctx context.Context, s *subject) Result {
	const many = 1000
	registry, err := postgres.FindRegistry(ctx, s.db, s.schema)
	if err != nil || !registry.Heartbeats.Readable || !registry.Waits.Readable {
		return skipped("there is no registry that this role may read")
	}
	var rows, gone int
	err = s.read(ctx, "SELECT pg_catalog.count(*), pg_catalog.count(*) FILTER (WHERE expires < pg_catalog.now() - interval '1 hour') FROM (SELECT expires FROM ONLY "+
		registry.Heartbeats.Name+" UNION ALL SELECT expires FROM ONLY "+registry.Waits.Name+") AS r", &rows, &gone)
	switch {
	case err != nil:
		return failed(err)
	case gone > many:
		const statement = "\nDELETE FROM %s WHERE expires < now() - interval '1 hour';"
		heartbeats, waits := "latchkey_heartbeats", "latchkey_waits"
		if s.schema != "" {
			heartbeats, waits = registry.Heartbeats.Name, registry.Waits.Name
		}
		return warning(counted(gone, "row")+" of the registry are of processes that are gone",
			"Run lockwatch.Watch in one process, which removes them, or:"+fmt.Sprintf(statement, heartbeats)+fmt.Sprintf(statement, waits))
	}
	return passed("the registry has %s, %d of processes that are gone", counted(rows, "row"), gone)
}
