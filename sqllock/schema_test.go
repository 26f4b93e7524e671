package sqllock_test

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Each kind's statements make the fence's table, the marks' and what else that kind needs. (Package
// internal/databases runs them.)
func TestSchema(t *testing.T) {
	t.Parallel()
	for d, tables := range map[sqllock.Dialect][]string{
		sqllock.PostgreSQL: {"sessions", "locks", "claims", "tokens", "fence", "marks"},
		sqllock.SQLite:     {"sessions", "locks", "claims", "tokens", "fence", "marks"},
		sqllock.MySQL:      {"claims", "tokens", "fence", "marks"},
	} {
		schema := sqllock.Schema(d)
		for _, table := range tables {
			if !strings.Contains(schema, "CREATE TABLE IF NOT EXISTS latchkey_"+table+" (") {
				t.Errorf("%s: no table latchkey_%s in %s", d, table, schema)
			}
		}
		if n := strings.Count(schema, "CREATE TABLE"); n != len(tables) {
			t.Errorf("%s: %d tables, want %d", d, n, len(tables))
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Schema of an unknown dialect did not panic")
		}
	}()
	sqllock.Schema("oracle")
}
