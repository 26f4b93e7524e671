package pgtest

import (
	"strings"
	"testing"
)

func TestDatabase(t *testing.T) {
	t.Parallel()
	const query = "SELECT current_database()"
	var names [2]string
	var server string
	t.Run("uses", func(t *testing.T) {
		for i := range names {
			dsn := Database(t)
			names[i] = ask[string](t, dsn, query)
			server = withDatabase(dsn, "postgres")
		}
		// An open connection does not keep the database.
		db := open(t, "pgx", Database(t))
		must(t, db.Ping())
	})
	if server == "" {
		return // skipped, or failed
	}
	if names[0] == names[1] {
		t.Error("two tests have one database")
	}
	if n := ask[int](t, server, "SELECT count(*) FROM pg_database WHERE datname IN ('"+names[0]+"', '"+names[1]+"')"); n != 0 {
		t.Errorf("%d databases remain after the test", n)
	}
}

// LATCHKEY_TEST_POSTGRES replaces the shared server.
func TestDatabaseOnRunningServer(t *testing.T) {
	c := New(t)
	withoutPrograms(t)
	const port = "SELECT inet_server_port()"
	for name, dsn := range map[string]string{
		"URL":       c.DSN(""),
		"key=value": strings.NewReplacer("PORT", strings.Split(strings.Split(c.DSN(""), ":")[2], "/")[0]).Replace("host=127.0.0.1 port=PORT user=postgres dbname=postgres sslmode=disable"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvServer, dsn)
			if got := ask[int](t, Database(t), port); got != c.port {
				t.Errorf("the database is on port %d, want %d", got, c.port)
			}
		})
	}
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	tests := []struct{ dsn, want string }{
		{"postgres://u:p@h:5432/old?sslmode=disable", "postgres://u:p@h:5432/new?sslmode=disable"},
		{"postgresql://h", "postgresql://h/new"},
		{"postgres://u@/old?dbname=older&host=%2Ftmp", "postgres://u@/new?host=%2Ftmp"},
		{"host=h dbname=old", "host=h dbname=old dbname=new"},
	}
	for _, tt := range tests {
		if got := withDatabase(tt.dsn, "new"); got != tt.want {
			t.Errorf("withDatabase(%q) = %q, want %q", tt.dsn, got, tt.want)
		}
	}
}
