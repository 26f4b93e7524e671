package lockdoctor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// findMySQLTables describes the tables of our names in the connection's
// database. A column shows the rights of this user, without DELETE.
func (s *subject) findMySQLTables(ctx context.Context) (found []foundTable, err error) {
	conn, err := dbconn.Lend(ctx, s.db)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	rows, err := conn.QueryContext(ctx, `SELECT t.table_name, t.table_type, t.engine, c.column_name, LOWER(c.data_type), c.column_key, LOWER(c.privileges)
		FROM information_schema.tables AS t JOIN information_schema.columns AS c ON c.table_schema = t.table_schema AND c.table_name = t.table_name
		WHERE t.table_schema = DATABASE() AND t.table_name LIKE 'latchkey%' ORDER BY t.table_name, c.ordinal_position`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, kind, column, columnType, key, rights string
		var engine sql.NullString
		if err := rows.Scan(&name, &kind, &engine, &column, &columnType, &key, &rights); err != nil {
			return nil, err
		}
		if len(found) == 0 || found[len(found)-1].Table != name {
			t := foundTable{Table: name, Engine: engine.String, Trusted: true, Rights: allRights}
			if kind == "BASE TABLE" {
				t.Kind = plainTable
			}
			found = append(found, t)
		}
		found[len(found)-1].add(column, columnType, key == "PRI", rights)
	}
	return found, rows.Err()
}

// add notes a column. This role has a right on the table if it has it on each
// column.
func (t *foundTable) add(name, columnType string, key bool, rights string) {
	t.Columns = append(t.Columns, column{name, columnType})
	t.Key = t.Key || key
	has := []string{"DELETE"} // which columns do not show
	for _, r := range t.Rights {
		if strings.Contains(rights, strings.ToLower(r)) {
			has = append(has, r)
		}
	}
	t.Rights = has
}

// mysqlTables compares the tables with those that this version makes.
func mysqlTables(ctx context.Context, s *subject) Result {
	found, err := s.findMySQLTables(ctx)
	if err != nil {
		return failed(err)
	}
	return s.tablesResult(found)
}

// mysqlRights checks the rights of the pool's user on the tables that exist. A
// Session and Fence make the missing ones, if they may.
func mysqlRights(ctx context.Context, s *subject) Result {
	found, err := s.findMySQLTables(ctx)
	if err != nil {
		return failed(err)
	}
	findings := s.missingRights(found, func(rights, table string) string {
		return fmt.Sprintf("GRANT %s ON %s TO …; with this user", rights, table)
	})
	return worst(passed("the user has the rights that are needed on the tables that it sees"), findings)
}
