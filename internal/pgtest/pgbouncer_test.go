package pgtest

import (
	"path/filepath"
	"testing"
)

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
