package lockdoctor

import (
	"regexp"
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

// A statement of one of our schemas has a line for each column.
var (
	tableLine  = regexp.MustCompile(`^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \(`)
	columnLine = regexp.MustCompile("\n\\s*`?(\\w+)`?[ \\t]+(\\w+)")
)

// parseTable returns false for another statement than CREATE TABLE.
func parseTable(d sqllock.Dialect, statement string) (t table, ok bool) {
	head := tableLine.FindStringSubmatch(statement)
	if head == nil {
		return t, false
	}
	t.table = head[1]
	for _, words := range columnLine.FindAllStringSubmatch(statement, -1) {
		if slices.Contains([]string{"PRIMARY", "CONSTRAINT", "KEY"}, words[1]) {
			continue
		}
		name := strings.ToLower(words[2])
		if in := catalogTypes[d][name]; in != "" {
			name = in
		}
		t.columns = append(t.columns, column{words[1], name})
	}
	return t, true
}

// catalogTypes are the names that the catalog has for types of our schemas.
var catalogTypes = map[sqllock.Dialect]map[string]string{
	sqllock.PostgreSQL: {"int": "integer", "timestamptz": "timestamp with time zone"},
	sqllock.MySQL:      {"integer": "int", "boolean": "tinyint"},
}
