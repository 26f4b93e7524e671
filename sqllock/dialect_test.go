package sqllock_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// schemas are the schemas of all features.
var schemas = map[string]func(sqllock.Dialect) []string{
	"sqllock.Schema": sqllock.Schema, "sqllock.FenceSchema": sqllock.FenceSchema, "lockwatch.Schema": lockwatch.Schema,
}

// Each schema creates the tables of its feature and no others. Each of its
// elements can be passed through a tool that splits at semicolons. A caller may
// change what it gets.
func TestSchema(t *testing.T) {
	t.Parallel()
	lease := []string{"latchkey_sessions", "latchkey_locks", "latchkey_secret_checks", "latchkey_tokens"}
	created := regexp.MustCompile(`CREATE TABLE IF NOT EXISTS (\w+) \(`)
	for _, tt := range []struct {
		feature string
		d       sqllock.Dialect
		tables  []string
	}{
		{"sqllock.Schema", sqllock.PostgreSQL, lease},
		{"sqllock.Schema", sqllock.SQLite, lease},
		{"sqllock.Schema", sqllock.MySQL, []string{"latchkey_secret_checks", "latchkey_sessions", "latchkey_locks"}},
		{"sqllock.FenceSchema", sqllock.PostgreSQL, []string{"latchkey_fence"}},
		{"sqllock.FenceSchema", sqllock.SQLite, []string{"latchkey_fence"}},
		{"sqllock.FenceSchema", sqllock.MySQL, []string{"latchkey_tokens", "latchkey_fence"}},
		{"lockwatch.Schema", sqllock.PostgreSQL, []string{"latchkey_heartbeats", "latchkey_waits"}},
		{"lockwatch.Schema", sqllock.SQLite, nil},
		{"lockwatch.Schema", sqllock.MySQL, nil},
	} {
		for range 2 {
			var tables []string
			schema := schemas[tt.feature](tt.d)
			for i, statement := range schema {
				if strings.Contains(statement, ";") {
					t.Errorf("%s(%s): a semicolon in %s", tt.feature, tt.d, statement)
				}
				for _, match := range created.FindAllStringSubmatch(statement, -1) {
					tables = append(tables, match[1])
				}
				schema[i] = "DROP TABLE work"
			}
			if !slices.Equal(tables, tt.tables) {
				t.Errorf("%s(%s) creates %q, want %q", tt.feature, tt.d, tables, tt.tables)
			}
		}
		pkg, _, _ := strings.Cut(tt.feature, ".")
		wantPanic(t, tt.feature+" of an unknown dialect", pkg+": ", func() { schemas[tt.feature]("oracle") })
	}
}

// wantPanic checks that call panics with a text that begins like this.
func wantPanic(t *testing.T, what, begins string, call func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := fmt.Sprint(recover()); !strings.HasPrefix(got, begins) {
			t.Errorf("%s: panic %q, want one that begins with %q", what, got, begins)
		}
	}()
	call()
}

// Each statement runs alone and can be repeated, in every way in which the
// drivers send it.
func TestSchemaRunsStatementByStatement(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		ways := []string{""}
		if driver == "pgx" {
			ways = append(ways, "&default_query_exec_mode=exec", "&default_query_exec_mode=simple_protocol")
		}
		for _, way := range ways {
			db := open(t, driver, dsn+way)
			for name, schema := range schemas {
				create(t, db, schema(sqllock.PostgreSQL))
				for _, statement := range schema(sqllock.PostgreSQL) {
					prepared, err := db.Prepare(statement) // the server rejects two statements in one string here
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if _, err := prepared.Exec(); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					_ = prepared.Close()
				}
			}
		}
	})
}
