package lockdoctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A foundTable is a table of our names as it is in the database.
type foundTable struct {
	name, schema string
	inSQL        string // the name for a statement of a fix
	columns      []column
	rights       []string // those of allRights that this role has on each column
	flaws        []string // keys of flaws
}

// The queries for tables of our names have a row for each column. Its fields are
// the table, its schema, its name in SQL, the column and its type, the rights
// that this role has, and the flaws.
//
// On PostgreSQL they are those that the search_path finds, or the registry's in
// the schema of WithSchema. The owner of a table is trusted as lockwatch trusts
// it. MySQL does not show the right to delete. SQLite has no rights.
const (
	postgresTablesQuery = `SELECT c.relname, n.nspname, CASE WHEN t.named THEN pg_catalog.format('%%I.%%I', n.nspname, c.relname) ELSE c.relname END,
	a.attname, pg_catalog.format_type(a.atttypid, NULL),
	coalesce((SELECT pg_catalog.string_agg(r, ',') FROM pg_catalog.unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
		WHERE pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, r)), ''),
	pg_catalog.concat_ws(',', CASE WHEN c.relkind <> 'r' THEN 'kind' END,
		CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = c.oid AND contype = 'p') THEN 'key' END,
		CASE WHEN c.relname = 'latchkey_fence' AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint
			WHERE conrelid = c.oid AND contype = 'c' AND convalidated AND conname = 'latchkey_fence_stale') THEN 'constraint' END,
		CASE WHEN c.relpersistence = 'u' THEN 'unlogged' END,
		CASE WHEN pg_catalog.row_security_active(c.oid) THEN 'hidden' END,
		CASE WHEN NOT (t.named OR pg_catalog.pg_get_userbyid(c.relowner) = current_user
			OR c.relowner = (SELECT datdba FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
			OR (SELECT rolsuper FROM pg_catalog.pg_roles WHERE oid = c.relowner)) THEN 'stranger' END)
	FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
	JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped,
	LATERAL (SELECT %[1]s <> '' AND c.relname IN ('latchkey_heartbeats', 'latchkey_waits') AS named) AS t
	WHERE c.relname LIKE 'latchkey%%' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
	AND CASE WHEN t.named THEN n.nspname = %[1]s ELSE pg_catalog.pg_table_is_visible(c.oid) END
	ORDER BY n.nspname, c.relname, a.attnum`

	mysqlTablesQuery = `SELECT t.table_name, '', t.table_name, c.column_name, LOWER(c.data_type), CONCAT('DELETE,', UPPER(c.privileges)),
	CONCAT_WS(',', IF(t.table_type <> 'BASE TABLE', 'kind', NULL), IF(t.engine <> 'InnoDB', 'engine', NULL),
		IF((SELECT COUNT(*) FROM information_schema.columns AS k WHERE k.table_schema = t.table_schema AND k.table_name = t.table_name AND k.column_key = 'PRI') = 0, 'key', NULL))
	FROM information_schema.tables AS t JOIN information_schema.columns AS c ON c.table_schema = t.table_schema AND c.table_name = t.table_name
	WHERE t.table_schema = DATABASE() AND t.table_name LIKE 'latchkey%' ORDER BY t.table_name, c.ordinal_position`

	sqliteTablesQuery = `SELECT t.name, '', t.name, c.name, '', 'SELECT,INSERT,UPDATE,DELETE', CASE WHEN t.type = 'view' THEN 'kind'
		WHEN NOT EXISTS (SELECT 1 FROM pragma_table_info(t.name, 'main') AS k WHERE k.pk > 0) THEN 'key' ELSE '' END
	FROM main.sqlite_master AS t, pragma_table_info(t.name, 'main') AS c
	WHERE t.type IN ('table', 'view') AND t.name LIKE 'latchkey%' ORDER BY t.name, c.cid`
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
	found := []foundTable{}
	err := s.each(ctx, query, func(scan func(...any) error) error {
		var (
			t             foundTable
			c             column
			rights, flaws string
		)
		if err := scan(&t.name, &t.schema, &t.inSQL, &c.Name, &c.Type, &rights, &flaws); err != nil {
			return err
		}
		if last := len(found) - 1; last < 0 || found[last].name != t.name || found[last].schema != t.schema {
			t.rights, t.flaws = allRights, strings.Split(flaws, ",")
			found = append(found, t)
		}
		is := &found[len(found)-1]
		is.columns = append(is.columns, c)
		is.rights = slices.DeleteFunc(slices.Clone(is.rights), func(r string) bool { return !strings.Contains(rights, r) })
		return nil
	})
	if err == nil {
		s.tables = found
	}
	return err
}

// pairs returns the tables of this version, each with the one that was found. It
// has no name if there is none.
func (s *subject) pairs() (pairs []pair) {
	for _, want := range tablesOf(s.dialect) {
		p := pair{want: want}
		if i := slices.IndexFunc(s.tables, func(is foundTable) bool { return is.name == want.table }); i >= 0 {
			p.is, p.found = s.tables[i], true
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// A pair is a table of this version, and what is in the database.
type pair struct {
	want  table
	is    foundTable
	found bool
}

// tables compares the tables with those that this version makes. Lease tables in
// two schemas would be two sets of locks.
func tables(_ context.Context, s *subject) (fine string, err error) {
	count := 0
	features, schemas := map[string]bool{}, map[string]bool{} // the latter of lease tables
	for _, t := range s.pairs() {
		if t.found {
			count++
			features[t.want.name] = true
			schemas[t.is.schema] = schemas[t.is.schema] || t.want.name == leases
			s.compare(t.want, t.is)
		}
	}
	for _, t := range s.pairs() {
		// A Session makes the lease tables itself, and Fence does on other systems than PostgreSQL.
		made := t.want.name == leases || t.want.name == fences && s.dialect != sqllock.PostgreSQL
		if features[t.want.name] && !t.found && !made {
			s.warn("there is no "+t.want.table, "Run the statements of "+t.want.source+".")
		}
	}
	maps.DeleteFunc(schemas, func(_ string, ofLeases bool) bool { return !ofLeases })
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

// flaws are what may be wrong with a table as a whole. TABLE stands for its name,
// and AGAIN for how to make it anew.
var flaws = map[string]struct{ reason, fix string }{
	"kind":       {"is not a plain table", "AGAIN"},
	"key":        {"has no primary key", "AGAIN"},
	"constraint": {"lacks the constraint latchkey_fence_stale, so no stale lock is rejected", "ALTER TABLE TABLE ADD CONSTRAINT latchkey_fence_stale CHECK (NOT stale);"},
	"engine":     {"has an engine without transactions", "ALTER TABLE TABLE ENGINE = InnoDB;"},
	"unlogged":   {"is UNLOGGED, so a crash of the server empties it while holders believe in their locks", "ALTER TABLE TABLE SET LOGGED;"},
	"hidden":     {"has row security, which hides rows from this role", "ALTER TABLE TABLE DISABLE ROW LEVEL SECURITY;"},
	"stranger": {"belongs to neither this role nor the database's owner nor a superuser, so it is not read",
		"ALTER TABLE TABLE OWNER TO CURRENT_USER; as a superuser, or pass WithSchema if you trust the owner."},
}

// compare notes what is wrong with one table. No lock depends on the registry,
// which may be UNLOGGED, and is the only one whose owner matters.
func (s *subject) compare(want table, is foundTable) {
	again := fmt.Sprintf("Rename or drop %s, then run the statements of %s.", is.inSQL, want.source)
	note := s.wrong
	if want.registry {
		note = s.warn
	}
	isTable := !slices.Contains(is.flaws, "kind")
	var lacks []string
	for _, c := range want.columns {
		if !slices.ContainsFunc(is.columns, func(has column) bool {
			return has.Name == c.Name && (has.Type == c.Type || s.dialect == sqllock.SQLite) // which does not enforce types
		}) {
			lacks = append(lacks, c.Name+" "+c.Type)
		}
	}
	if isTable && len(lacks) > 0 {
		note(want.table+" is older or foreign: it lacks "+strings.Join(lacks, ", "), again)
	}
	for _, name := range is.flaws {
		flaw, known := flaws[name]
		if known && (isTable || name == "kind") && (name != "unlogged" || !want.registry) && (name != "stranger" || want.registry) {
			note(want.table+" "+flaw.reason, strings.NewReplacer("TABLE TABLE", "TABLE "+is.inSQL, "AGAIN", again).Replace(flaw.fix))
		}
	}
}

// lackRights notes the rights that this role lacks on the tables that are there.
func (s *subject) lackRights() {
	for _, t := range s.pairs() {
		lacks := slices.DeleteFunc(slices.Clone(t.want.rights), func(r string) bool { return slices.Contains(t.is.rights, r) })
		if !t.found || len(lacks) == 0 || t.want.name == leases && s.dialect == sqllock.PostgreSQL && !s.leaseTable {
			continue
		}
		rights, note := strings.Join(lacks, ", "), s.wrong
		if t.want.registry {
			note = s.warn
		}
		note("the role lacks "+rights+" on "+t.want.table, "GRANT "+rights+" ON "+t.is.inSQL+" TO …; with this role, which also needs USAGE on a schema of PostgreSQL")
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
	const query = `SELECT coalesce(pg_catalog.has_schema_privilege((pg_catalog.current_schemas(false))[1], 'CREATE'), false),
		NOT EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace = 'pg_catalog'::pg_catalog.regnamespace
			AND proname IN ('pg_control_system', 'pg_logical_emit_message')
			AND proargtypes[2] IS DISTINCT FROM 'pg_catalog.bytea'::pg_catalog.regtype::oid AND NOT pg_catalog.has_function_privilege(oid, 'EXECUTE')),
		(SELECT pg_catalog.count(DISTINCT pid) FROM pg_catalog.pg_locks JOIN pg_catalog.pg_stat_get_activity(NULL) AS a USING (pid)
			WHERE locktype = 'advisory' AND a.backend_start IS NULL
			AND database = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())))`
	var (
		mayCreate, mayDraw bool
		hidden             int
	)
	if err := s.read(ctx, query, &mayCreate, &mayDraw, &hidden); err != nil {
		return "", err
	}
	if !s.leaseTable {
		if err := s.revoked(ctx); err != nil {
			return "", err
		}
	}
	s.lackRights()
	for _, t := range s.pairs() {
		switch {
		case t.want.name == fences && t.found && !mayDraw:
			s.wrong("the role may not draw the tokens of Fence",
				"GRANT EXECUTE ON FUNCTION pg_control_system, pg_logical_emit_message(boolean, text, text) TO …; with this role (PostgreSQL 17 and newer: and a further boolean)")
		case t.want.name == leases && !t.found && s.leaseTable && !mayCreate:
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
