package watermark_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// Schema returns one statement, which creates the table. It has no semicolon,
// so that tools may split at semicolons. The slice belongs to the caller.
func TestSchema(t *testing.T) {
	t.Parallel()
	for _, d := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.SQLite, sqllock.MySQL} {
		before := slices.Clone(watermark.Schema(d))
		got := watermark.Schema(d)
		if len(got) != 1 || strings.Contains(got[0], ";") ||
			!strings.HasPrefix(got[0], "CREATE TABLE IF NOT EXISTS latchkey_watermarks (") || strings.Count(got[0], "CREATE") != 1 {
			t.Fatalf("%s: %q", d, got)
		}
		got[0] = "DROP TABLE work"
		if after := watermark.Schema(d); !slices.Equal(after, before) {
			t.Errorf("%s: %q, want %q", d, after, before)
		}
	}
}

func TestSchemaOfAnUnknownDialect(t *testing.T) {
	t.Parallel()
	defer func() {
		if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "watermark: ") {
			t.Errorf("panic %q, want one of this package", text)
		}
	}()
	watermark.Schema("oracle")
}

// The statement runs in every way in which the drivers send it, and runs again.
// A prepared statement is one statement, and not two.
func TestSchemaRuns(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		ways := []string{""}
		if driver == "pgx" {
			ways = []string{"", "&default_query_exec_mode=exec", "&default_query_exec_mode=simple_protocol"}
		}
		for _, way := range ways {
			dbtest.Create(t, dbtest.Open(t, driver, dsn+way), watermark.Schema(sqllock.PostgreSQL))
		}
		prepared, err := dbtest.Open(t, driver, dsn).Prepare(watermark.Schema(sqllock.PostgreSQL)[0])
		if err != nil {
			t.Fatal(err)
		}
		defer prepared.Close()
		if _, err := prepared.Exec(); err != nil {
			t.Error(err)
		}
	})
}
