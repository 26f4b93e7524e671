package pgtest

import (
	"path/filepath"
	"testing"
)

// pids returns the backends that two clients of b reach, one after the other.
func pids(t *testing.T, driver, dsn string) (a, b int) {
	t.Helper()
	db := open(t, driver, dsn)
	for _, pid := range []*int{&a, &b} {
		conn, err := db.Conn(t.Context())
		must(t, err)
		t.Cleanup(func() { conn.Close() })
		tx, err := conn.BeginTx(t.Context(), nil)
		must(t, err)
		must(t, tx.QueryRow("SELECT pg_backend_pid()").Scan(pid))
		must(t, tx.Commit())
	}
	return a, b
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	c := New(t)
	tests := []struct {
		mode string
		same bool // two clients share a backend
	}{
		{"transaction", true},
		{"session", false},
	}
	for _, tt := range tests {
		for _, driver := range Drivers() {
			t.Run(tt.mode+"/"+driver, func(t *testing.T) {
				t.Parallel()
				b, err := c.PgBouncer(tt.mode, 2)
				must(t, err)
				dsn := b.DSN("")
				if driver == "pgx" { // no prepared statements behind a pooler
					dsn += "&default_query_exec_mode=simple_protocol"
				}
				first, second := pids(t, driver, dsn)
				if (first == second) != tt.same {
					t.Errorf("backends %d and %d: want the same %v", first, second, tt.same)
				}
				children, err := childrenOf(c.server.pid)
				must(t, err)
				found := false
				for _, pid := range children {
					found = found || pid == first
				}
				if !found {
					t.Errorf("%d is no backend of the server behind", first)
				}
			})
		}
	}
}

func TestLongPgBouncerSurvivesRestartOfServer(t *testing.T) {
	t.Parallel()
	c := New(t)
	b, err := c.PgBouncer("transaction", 1)
	must(t, err)
	dsn := b.DSN("") + "&default_query_exec_mode=simple_protocol"
	do(t, dsn, "SELECT 1")
	must(t, c.Restart(true))
	must(t, poll(startTimeout, "PgBouncer to connect again", func() (bool, error) {
		return execute(t.Context(), dsn, "SELECT 1") == nil, nil
	}))
}

func TestLongPgBouncerKill(t *testing.T) {
	t.Parallel()
	c := New(t)
	b, err := c.PgBouncer("session", 1)
	must(t, err)
	do(t, b.DSN(""), "SELECT 1")
	must(t, b.Kill())
	if execute(t.Context(), b.DSN(""), "SELECT 1") == nil {
		t.Error("a killed PgBouncer responds")
	}
	must(t, b.Kill())
	must(t, b.Close())
	must(t, b.Close())
	do(t, c.DSN(""), "SELECT 1")
}

func TestPgBouncerBadMode(t *testing.T) {
	t.Parallel()
	c := New(t)
	if b, err := c.PgBouncer("moody", 1); err == nil {
		t.Errorf("no error: %v", b.DSN(""))
	}
}

func TestFindBouncer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fakePostgres(t, dir, "1.18", "pgbouncer")
	for name, find := range map[string]func() (string, error){
		"in PATH":   func() (string, error) { return findBouncer(dir, nil) },
		"elsewhere": func() (string, error) { return findBouncer("/nowhere", []string{"/nor/here", dir}) },
	} {
		if got, err := find(); err != nil || got != filepath.Join(dir, "pgbouncer") {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if _, err := findBouncer("", nil); err != errNoPgBouncer {
		t.Errorf("got %v, want errNoPgBouncer", err)
	}
}
