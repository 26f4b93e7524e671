package lockdoctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// A feature has tables of its own.
type feature struct {
	name   string
	schema func(sqllock.Dialect) []string
	source string // the function that returns the statements, as callers write it
	rights []string

	registry bool // read and written for people: no lock depends on it
	lasting  bool // what is lost in a crash of the server is missed
}

// The rights that statements on a table need.
var (
	readAndWrite = []string{"SELECT", "INSERT", "UPDATE"}
	allRights    = []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
)

// Names of features that are treated apart.
const leases, fences = "leases", "fences"

// features are those of which a table may exist.
var features = []feature{
	{name: leases, schema: sqllock.Schema, source: "sqllock.Schema", rights: allRights},
	{name: fences, schema: sqllock.FenceSchema, source: "sqllock.FenceSchema", rights: readAndWrite},
	{name: "watermarks", schema: watermark.Schema, source: "watermark.Schema", rights: readAndWrite, lasting: true},
	{name: "registry", schema: lockwatch.Schema, source: "lockwatch.Schema", rights: allRights, registry: true},
	{name: "responses", schema: responses, source: "idempotency.Schema", rights: allRights, lasting: true},
}

// responses returns the columns of the table of httpmw/idempotency, which this
// package may not import. A test compares them with its Schema.
func responses(sqllock.Dialect) []string {
	return []string{"CREATE TABLE latchkey_responses (\nkey _\nfingerprint _\nstatus _\nheader _\nbody _\ncreated_at _"}
}

// A table is one that this version makes, and what the database has under its name.
type table struct {
	feature
	table   string
	columns []string

	found bool
	is    foundTable
}

// A foundTable is a table of our names as it is in the database.
type foundTable struct {
	schema  string
	inSQL   string // the name for a statement of a fix
	columns []string
	rights  []string // those of allRights that this role has on all of it
	flaws   string   // keys of flaws, with commas between
}

// tablesOf returns the tables of a feature in a database of kind d.
func tablesOf(d sqllock.Dialect, f feature) (all []table) {
	for _, t := range dialect.TablesOf(f.schema(d)) {
		all = append(all, table{feature: f, table: t.Name, columns: t.Columns})
	}
	return all
}

// The queries for tables of our names have a row for each. Its fields are the
// table, its schema, its name in SQL, its columns, the rights that this role has,
// and the flaws. A view has no primary key. Behind a column that every INSERT must
// name there is an exclamation mark.
//
// On PostgreSQL they are those that the search_path finds, or the registry's in
// the schema of WithSchema. The owner of a table is trusted as lockwatch trusts
// it. MySQL does not show the right to delete. SQLite has no rights.
const (
	postgresTablesQuery = `SELECT c.relname, n.nspname, CASE WHEN t.named THEN pg_catalog.format('%%I.%%I', n.nspname, c.relname) ELSE c.relname END,
	coalesce((SELECT pg_catalog.string_agg(attname || CASE WHEN attnotnull AND NOT atthasdef AND attidentity = '' THEN '!' ELSE '' END, ',')
		FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), ''),
	coalesce((SELECT pg_catalog.string_agg(r, ',') FROM pg_catalog.unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
		WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, r)), ''),
	pg_catalog.concat_ws(',', CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = c.oid AND contype = 'p') THEN 'key' END,
		CASE WHEN c.relname = 'latchkey_fence' AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint
			WHERE conrelid = c.oid AND contype = 'c' AND convalidated AND conname = 'latchkey_fence_stale') THEN 'constraint' END,
		CASE WHEN c.relpersistence = 'u' AND NOT t.registry THEN 'unlogged' END,
		CASE WHEN pg_catalog.row_security_active(c.oid) THEN 'hidden' END,
		CASE WHEN t.registry AND NOT (t.named OR pg_catalog.pg_get_userbyid(c.relowner) = current_user
			OR c.relowner = (SELECT datdba FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
			OR (SELECT rolsuper FROM pg_catalog.pg_roles WHERE oid = c.relowner)) THEN 'stranger' END)
	FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace,
	LATERAL (SELECT c.relname IN ('latchkey_heartbeats', 'latchkey_waits') AS registry,
		%[1]s <> '' AND c.relname IN ('latchkey_heartbeats', 'latchkey_waits') AS named) AS t
	WHERE c.relname LIKE 'latchkey%%' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
	AND CASE WHEN t.named THEN n.nspname = %[1]s ELSE pg_catalog.pg_table_is_visible(c.oid) END`

	mysqlTablesQuery = `SELECT t.table_name, '', t.table_name,
	GROUP_CONCAT(c.column_name, IF(c.is_nullable = 'NO' AND c.column_default IS NULL AND c.extra = '', '!', '')), CONCAT_WS(',', 'DELETE',
		IF(MIN(c.privileges LIKE '%select%'), 'SELECT', NULL), IF(MIN(c.privileges LIKE '%insert%'), 'INSERT', NULL), IF(MIN(c.privileges LIKE '%update%'), 'UPDATE', NULL)),
	CONCAT_WS(',', IF(MAX(t.engine) <> 'InnoDB', 'engine', NULL), IF(MAX(c.column_key = 'PRI'), NULL, 'key'))
	FROM information_schema.tables AS t JOIN information_schema.columns AS c ON c.table_schema = t.table_schema AND c.table_name = t.table_name
	WHERE t.table_schema = DATABASE() AND t.table_name LIKE 'latchkey%' GROUP BY t.table_name`

	sqliteTablesQuery = `SELECT name, '', name,
	(SELECT group_concat(c.name || iif(c."notnull" AND c.dflt_value IS NULL, '!', '')) FROM pragma_table_info(t.name, 'main') AS c), 'SELECT,INSERT,UPDATE,DELETE',
		CASE WHEN EXISTS (SELECT 1 FROM pragma_table_info(t.name, 'main') AS k WHERE k.pk > 0) THEN '' ELSE 'key' END
	FROM main.sqlite_master AS t WHERE type IN ('table', 'view') AND name LIKE 'latchkey%'`
)

// find looks for the tables of our names. It asks once.
func (s *subject) find(ctx context.Context) error {
	if s.tables != nil {
		return nil
	}
	query := map[sqllock.Dialect]string{
		sqllock.PostgreSQL: fmt.Sprintf(postgresTablesQuery, dialect.Quoted(s.schema)),
		sqllock.MySQL:      mysqlTablesQuery,
		sqllock.SQLite:     sqliteTablesQuery,
	}[s.dialect]
	found := map[string]foundTable{}
	err := s.each(ctx, query, func(scan func(...any) error) error {
		var name, columns, rights string
		var is foundTable
		err := scan(&name, &is.schema, &is.inSQL, &columns, &rights, &is.flaws)
		is.columns, is.rights = strings.Split(columns, ","), strings.Split(rights, ",")
		found[name] = is
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range features {
		for _, t := range tablesOf(s.dialect, f) {
			t.is, t.found = found[t.table]
			s.tables = append(s.tables, t)
		}
	}
	return nil
}

// lacking lists what is wanted and not there.
func lacking(want, has []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(want), func(w string) bool { return slices.Contains(has, w) }), ", ")
}

// note returns warn for a table of the registry, and wrong for any other.
func (s *subject) note(t table) func(reason, fix string) {
	if t.registry {
		return s.warn
	}
	return s.wrong
}

// tables compares the tables with those that this version makes. Lease tables in
// two schemas would be two sets of locks.
func tables(_ context.Context, s *subject) (fine string, err error) {
	count := 0
	used, schemas := map[string]bool{}, map[string]bool{} // features, and schemas of lease tables
	for _, t := range s.tables {
		if !t.found {
			continue
		}
		count++
		used[t.name] = true
		if t.name == leases {
			schemas[t.is.schema] = true
		}
		s.compare(t)
	}
	for _, t := range s.tables {
		// A Session makes the lease tables itself, and Fence does on other systems than PostgreSQL.
		made := t.name == leases || t.name == fences && s.dialect != sqllock.PostgreSQL
		if used[t.name] && !t.found && !made {
			s.warn("there is no "+t.table, "Run the statements of "+t.source+".")
		}
	}
	if s.dialect == sqllock.PostgreSQL && s.schema != "" && !used["registry"] {
		s.warn("the schema that was named has no table of the registry, or there is no such schema", "Correct the name, or run the statements of lockwatch.Schema in that schema.")
	}
	if len(schemas) > 1 {
		s.wrong("the lease tables are in more than one schema of the search_path", "Leave those of one schema, and give all services the same search_path.")
	}
	switch {
	case count > 0:
		return counted(count, "table") + " of latchkey as this version makes them", nil
	case s.dialect == sqllock.PostgreSQL && s.schema == "":
		return "no table of latchkey is in the search_path; if the registry is in another schema, pass it with WithSchema", nil
	}
	return "no feature that has tables is set up", nil
}

// flaws are what may be wrong with a table as a whole. NAME stands for its name,
// and AGAIN for how to make it anew.
var flaws = map[string]struct{ reason, fix string }{
	"key":        {"is a view, or has no primary key", "AGAIN"},
	"constraint": {"lacks the constraint latchkey_fence_stale, so no stale lock is rejected", "ALTER TABLE NAME ADD CONSTRAINT latchkey_fence_stale CHECK (NOT stale);"},
	"engine":     {"has an engine without transactions", "ALTER TABLE NAME ENGINE = InnoDB;"},
	"unlogged":   {"is UNLOGGED, so a crash of the server empties it while holders believe in their locks", "ALTER TABLE NAME SET LOGGED;"},
	"hidden":     {"has row security, which hides rows from this role", "ALTER TABLE NAME DISABLE ROW LEVEL SECURITY;"},
	"stranger": {"belongs to neither this role nor the database's owner nor a superuser, so it is not read",
		"ALTER TABLE NAME OWNER TO CURRENT_USER; as a superuser, or pass WithSchema if you trust the owner."},
}

// compare notes what is wrong with one table. No lock depends on the registry,
// which may be UNLOGGED, and is the only one whose owner matters.
func (s *subject) compare(t table) {
	note := s.note(t)
	again := fmt.Sprintf("Rename or drop %s, then run the statements of %s.", t.is.inSQL, t.source)
	var there []string
	for _, is := range t.is.columns { // which end in an exclamation mark if they are demanded
		name, demanded := strings.CutSuffix(is, "!")
		if there = append(there, name); demanded && !slices.Contains(t.columns, name) {
			note(t.table+" is newer than this version: it demands the column "+name, "Run here the version of latchkey that has made it.")
		}
	}
	if lacks := lacking(t.columns, there); lacks != "" {
		note(t.table+" is older or foreign: it lacks "+lacks, again)
	}
	for name := range strings.SplitSeq(t.is.flaws, ",") {
		if flaw, known := flaws[name]; known {
			note(t.table+" "+flaw.reason, strings.NewReplacer("NAME", t.is.inSQL, "AGAIN", again).Replace(flaw.fix))
		}
	}
}

// lackRights notes the rights that this role lacks on the tables that are there.
func (s *subject) lackRights() {
	for _, t := range s.tables {
		rights := lacking(t.rights, t.is.rights)
		if !t.found || rights == "" || t.name == leases && s.dialect == sqllock.PostgreSQL && !s.leaseTable {
			continue
		}
		s.note(t)("the role lacks "+rights+" on "+t.table, "GRANT "+rights+" ON "+t.is.inSQL+" TO …; with this role, which also needs USAGE on a schema of PostgreSQL")
	}
}

// mysqlRights checks the rights of the pool's user on the tables.
func mysqlRights(_ context.Context, s *subject) (fine string, err error) {
	s.lackRights()
	return "the user has the rights that are needed on the tables that it sees", nil
}

// postgresRights checks the rights of the pool's role: on tables and functions,
// to make tables where the search_path begins, and to see the holders of locks.
func postgresRights(ctx context.Context, s *subject) (fine string, err error) {
	const query = `SELECT pg_catalog.cardinality(pg_catalog.current_schemas(false)) = 0,
		coalesce(pg_catalog.has_schema_privilege((pg_catalog.current_schemas(false))[1], 'CREATE'), false),
		NOT EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::pg_catalog.regnamespace
			AND proname IN ('pg_control_system', 'pg_logical_emit_message')
			AND proargtypes[2] IS DISTINCT FROM 'pg_catalog.bytea'::pg_catalog.regtype::oid AND NOT pg_catalog.has_function_privilege(oid, 'EXECUTE')),
		(SELECT pg_catalog.count(DISTINCT pid) FROM pg_catalog.pg_locks JOIN pg_catalog.pg_stat_get_activity(NULL) AS a USING (pid)
			WHERE locktype = 'advisory' AND a.backend_start IS NULL
			AND database = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())))`
	var (
		noPath, mayCreate, mayDraw bool
		hidden                     int
	)
	if err := s.read(ctx, query, &noPath, &mayCreate, &mayDraw, &hidden); err != nil {
		return "", err
	}
	if !s.leaseTable {
		if err := s.revoked(ctx); err != nil {
			return "", err
		}
	}
	s.lackRights()
	for _, t := range s.tables {
		switch {
		case t.name == fences && t.found && !mayDraw:
			s.wrong("the role may not draw the tokens of Fence",
				"GRANT EXECUTE ON FUNCTION pg_control_system, pg_logical_emit_message(boolean, text, text) TO …; with this role (PostgreSQL 17 and newer: and a further boolean)")
		case t.name == leases && !t.found && s.leaseTable && noPath:
			s.wrong("the search_path names no schema in which the lease tables could be", "Set the search_path for the role, or in the connection string.")
		case t.name == leases && !t.found && s.leaseTable && !mayCreate:
			s.wrong("the lease tables are missing, and the role may not create them",
				"Run the statements of sqllock.Schema(sqllock.PostgreSQL) in a migration, and grant the role SELECT, INSERT, UPDATE and DELETE.")
		}
	}
	if hidden > 0 {
		s.warn("the role may not see since when, and for whom, "+counted(hidden, "server process")+" of other roles hold locks",
			"GRANT pg_read_all_stats TO …; with this role, if it is to inspect the locks of others")
	}
	return "the role has the rights that are needed", nil
}
