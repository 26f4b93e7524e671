package dialect

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A Table is a table that a schema creates, with the names of its columns.
type Table struct {
	Name    string
	Columns []string
}

// A statement of a schema has a line for each column.
var (
	tableLine  = regexp.MustCompile(`^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \(`)
	columnLine = regexp.MustCompile("\n\\s*`?(\\w+)`?[ \\t]")
)

// TablesOf returns the tables that the statements of a schema create.
func TablesOf(schema []string) (all []Table) {
	for _, statement := range schema {
		head := tableLine.FindStringSubmatch(statement)
		if head == nil {
			continue
		}
		t := Table{Name: head[1]}
		for _, words := range columnLine.FindAllStringSubmatch(statement, -1) {
			if !slices.Contains([]string{"PRIMARY", "CONSTRAINT", "KEY"}, words[1]) {
				t.Columns = append(t.Columns, words[1])
			}
		}
		all = append(all, t)
	}
	return all
}

// columnsQueries select a table, a column, and whether every INSERT must name the
// column: it is NOT NULL and has no default. The keys are names of Traits.
var columnsQueries = map[string]string{
	"postgres": `SELECT c.relname::text, a.attname::text, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' FROM pg_catalog.pg_attribute AS a
		JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
		WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relname::text LIKE 'latchkey%'
		AND CASE WHEN SCHEMA = '' THEN pg_catalog.pg_table_is_visible(c.oid) ELSE n.nspname = SCHEMA END`,
	"sqlite": `SELECT t.name, c.name, c."notnull" AND c.dflt_value IS NULL
		FROM main.sqlite_master AS t, pragma_table_info(t.name, 'main') AS c WHERE t.name LIKE 'latchkey%'`,
	"mysql": `SELECT table_name, column_name, is_nullable = 'NO' AND column_default IS NULL AND extra = ''
		FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name LIKE 'latchkey%'`,
}

// CheckTables checks that this version can use those tables of statements that
// are there. They have all its columns, and demand no other. On PostgreSQL they
// are those of schema, or those that the search_path finds if that is "".
//
// A later version keeps earlier ones out of its tables by a column that every
// INSERT must name.
func CheckTables(ctx context.Context, conn *sql.Conn, name, schema string, statements []string, source string) error {
	rows, err := conn.QueryContext(ctx, strings.ReplaceAll(columnsQueries[name], "SCHEMA", Quoted(schema)))
	if err != nil {
		return err
	}
	defer rows.Close()
	there := map[[2]string]bool{} // columns, and whether they must be named; a table has the column ""
	for rows.Next() {
		var table, column string
		var demanded bool
		if err := rows.Scan(&table, &column, &demanded); err != nil {
			return err
		}
		there[[2]string{table, column}], there[[2]string{table}] = demanded, false
	}
	misfit := ""
	for _, t := range TablesOf(statements) {
		_, found := there[[2]string{t.Name}]
		for _, column := range t.Columns {
			if _, ok := there[[2]string{t.Name, column}]; found && !ok && misfit == "" {
				misfit = fmt.Sprintf("the table %s is older than this version, or not its own: it lacks the column %s: stop all that use it, drop it, and run the statements of %s", t.Name, column, source)
			}
		}
		for c, demanded := range there {
			if c[0] == t.Name && demanded && !slices.Contains(t.Columns, c[1]) {
				misfit = fmt.Sprintf("the table %s is newer than this version: it demands the column %s: run here the version that has made it", c[0], c[1])
			}
		}
	}
	if err := rows.Err(); err != nil || misfit == "" {
		return err
	}
	return &Failure{Kind: Statement, State: errcode.InvalidTable, Permanent: true, Reason: misfit}
}
