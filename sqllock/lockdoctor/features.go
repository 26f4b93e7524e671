package lockdoctor

import (
	"slices"
	"strings"

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
func responses(d sqllock.Dialect) []string {
	types := map[sqllock.Dialect]string{
		sqllock.PostgreSQL: "key bytea PRIMARY KEY,\nfingerprint bytea,\nstatus integer,\nheader bytea,\nbody bytea,\ncreated_at timestamptz",
		sqllock.MySQL:      "key BINARY PRIMARY KEY,\nfingerprint BINARY,\nstatus INTEGER,\nheader MEDIUMBLOB,\nbody LONGBLOB,\ncreated_at TIMESTAMP",
		sqllock.SQLite:     "key BLOB PRIMARY KEY,\nfingerprint BLOB,\nstatus INTEGER,\nheader BLOB,\nbody BLOB,\ncreated_at TEXT",
	}
	return []string{"CREATE TABLE IF NOT EXISTS latchkey_responses (\n" + types[d] + "\n)"}
}

// A table is one that latchkey makes.
type table struct {
	feature
	table   string
	columns []column
}

// A column has the type as the catalog of the database spells it.
type column struct{ Name, Type string }

// tablesOf returns the tables of all features in a database of kind d.
func tablesOf(d sqllock.Dialect) (all []table) {
	for _, f := range features {
		for _, statement := range f.schema(d) {
			if t, ok := parseTable(d, statement); ok {
				t.feature = f
				all = append(all, t)
			}
		}
	}
	return all
}

// parseTable reads a statement of one of our schemas: a line for each column. It
// returns false for another statement than CREATE TABLE.
func parseTable(d sqllock.Dialect, statement string) (t table, ok bool) {
	head, body, ok := strings.Cut(statement, "(")
	words := strings.Fields(head)
	if !ok || len(words) < 2 || words[0] != "CREATE" || words[1] != "TABLE" {
		return table{}, false
	}
	t.table = words[len(words)-1]
	for _, line := range strings.Split(body, "\n") {
		words := strings.Fields(line)
		if len(words) < 2 || strings.HasPrefix(words[0], ")") || strings.HasPrefix(words[0], "--") ||
			slices.Contains([]string{"PRIMARY", "CONSTRAINT", "KEY"}, words[0]) {
			continue
		}
		t.columns = append(t.columns, column{strings.Trim(words[0], "`"), catalogType(d, words[1])})
	}
	return t, true
}

// catalogType returns the name that the catalog has for a type of our schemas.
func catalogType(d sqllock.Dialect, name string) string {
	name, _, _ = strings.Cut(strings.ToLower(strings.TrimSuffix(name, ",")), "(")
	other := map[sqllock.Dialect]map[string]string{
		sqllock.PostgreSQL: {"int": "integer", "timestamptz": "timestamp with time zone"},
		sqllock.MySQL:      {"integer": "int", "boolean": "tinyint"},
	}[d][name]
	if other != "" {
		return other
	}
	return name
}

// fenceTable is the table of Fence. Its constraint is what rejects a stale lock.
const (
	fenceTable      = "latchkey_fence"
	fenceConstraint = "latchkey_fence_stale"
)
