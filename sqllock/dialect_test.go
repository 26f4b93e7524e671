package sqllock_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// schemas are the schemas of all features.
var schemas = map[string]func(sqllock.Dialect) []string{
	"Schema": sqllock.Schema, "FenceSchema": sqllock.FenceSchema,
	"lockwatch.Schema": lockwatch.Schema,
}

// Each schema creates the tables of its feature and no others. Each of its
// elements can be passed through a tool that splits at semicolons.
func TestSchema(t *testing.T) {
	t.Parallel()
	lease := []string{"latchkey_sessions", "latchkey_locks", "latchkey_secret_checks", "latchkey_tokens"}
	tests := []struct {
		feature string
		d       sqllock.Dialect
		tables  []string
	}{
		{"Schema", sqllock.PostgreSQL, lease},
		{"Schema", sqllock.SQLite, lease},
		{"Schema", sqllock.MySQL, []string{"latchkey_secret_checks"}},
		{"FenceSchema", sqllock.PostgreSQL, []string{"latchkey_fence"}},
		{"FenceSchema", sqllock.SQLite, []string{"latchkey_fence"}},
		{"FenceSchema", sqllock.MySQL, []string{"latchkey_tokens", "latchkey_fence"}},
		{"lockwatch.Schema", sqllock.PostgreSQL, []string{"latchkey_heartbeats", "latchkey_waits"}},
		{"lockwatch.Schema", sqllock.SQLite, nil},
		{"lockwatch.Schema", sqllock.MySQL, nil},
	}
	created := regexp.MustCompile(`CREATE TABLE IF NOT EXISTS (\w+) \(`)
	for _, tt := range tests {
		var tables []string
		for _, statement := range schemas[tt.feature](tt.d) {
			if strings.Contains(statement, ";") {
				t.Errorf("%s(%s): a semicolon in %s", tt.feature, tt.d, statement)
			}
			for _, match := range created.FindAllStringSubmatch(statement, -1) {
				tables = append(tables, match[1])
			}
		}
		if !slices.Equal(tables, tt.tables) {
			t.Errorf("%s(%s) creates %q, want %q", tt.feature, tt.d, tables, tt.tables)
		}
	}
}

// A caller that appends to a schema does not change what the next caller gets.
func TestSchemaIsTheCallersOwn(t *testing.T) {
	t.Parallel()
	for name, schema := range schemas {
		before := slices.Clone(schema(sqllock.PostgreSQL))
		got := schema(sqllock.PostgreSQL)
		for i := range got {
			got[i] = "DROP TABLE work"
		}
		if after := schema(sqllock.PostgreSQL); !slices.Equal(after, before) {
			t.Errorf("%s: %q, want %q", name, after, before)
		}
	}
}

func TestSchemaOfAnUnknownDialect(t *testing.T) {
	t.Parallel()
	for name, schema := range schemas {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, packageOf(name)+": ") {
					t.Errorf("%s: panic %q, want one of this package", name, text)
				}
			}()
			schema("oracle")
		}()
	}
}

// packageOf returns the package of a schema's function.
func packageOf(name string) string {
	if pkg, _, ok := strings.Cut(name, "."); ok {
		return pkg
	}
	return "sqllock"
}

// Each statement runs alone and can be repeated, in every way in which the
// drivers send it.
func TestSchemaRunsStatementByStatement(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		ways := []string{""}
		if driver == "pgx" {
			ways = []string{"", "&default_query_exec_mode=exec", "&default_query_exec_mode=simple_protocol"}
		}
		for _, way := range ways {
			db := open(t, driver, dsn+way)
			for range 2 {
				for _, schema := range schemas {
					create(t, db, schema(sqllock.PostgreSQL))
				}
			}
		}
		db := open(t, driver, dsn)
		for name, schema := range schemas {
			for _, statement := range schema(sqllock.PostgreSQL) {
				prepared, err := db.Prepare(statement) // the server rejects two statements in one string here
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if _, err := prepared.Exec(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if err := prepared.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
