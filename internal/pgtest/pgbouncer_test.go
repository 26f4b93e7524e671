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
	if got, err := findBouncer("/nowhere:" + dir); err != nil || got != filepath.Join(dir, "pgbouncer") {
		t.Errorf("got %q, %v", got, err)
	}
}
