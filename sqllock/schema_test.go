package sqllock_test

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Each kind's statements make the fence's table, the marks', and what else that kind needs or has. (Package
// internal/databases runs them.)
func TestSchema(t *testing.T) {
	t.Parallel()
	for d, tables := range map[sqllock.Dialect][]string{
		sqllock.PostgreSQL: {"latchkey_sessions", "latchkey_locks", "latchkey_claims", "latchkey_tokens", "latchkey_fence", "latchkey_marks", "lock_heartbeats", "lock_waits"},
		sqllock.SQLite:     {"latchkey_sessions", "latchkey_locks", "latchkey_claims", "latchkey_tokens", "latchkey_fence", "latchkey_marks"},
		sqllock.MySQL:      {"latchkey_claims", "latchkey_tokens", "latchkey_fence", "latchkey_marks"},
	} {
		schema := sqllock.Schema(d)
		for _, table := range tables {
			if !strings.Contains(schema, "CREATE TABLE IF NOT EXISTS "+table+" (") {
				t.Errorf("%s: no table %s in %s", d, table, schema)
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
