package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/leaktest"
)

// open returns a *sql.DB, which the end of the test closes.
func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// ask runs a query that returns one value.
func ask[T any](t *testing.T, dsn, query string) T {
	t.Helper()
	value, err := queryValue[T](t.Context(), dsn, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func do(t *testing.T, dsn, query string) {
	t.Helper()
	if err := execute(t.Context(), dsn, query); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		Fatal(t, err)
	}
}

func TestStartErrorHoldsLog(t *testing.T) {
	t.Parallel()
	c, err := Start(WithSettings(map[string]string{"shared_buffers": "many"}))
	if err == nil {
		t.Fatal(c.Close())
	}
	if errors.Is(err, ErrNoPostgres) {
		Fatal(t, err)
	}
	if !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers": "many"`) {
		t.Errorf("the server's reason is not in: %v", err)
	}
}

// Neither test runs in parallel with others: they count what the process has.

func TestRunningClusterHasNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	c := New(t)
	do(t, c.DSN(""), "SELECT 1")
	if err := leaktest.Find(before); err != nil {
		t.Error(err)
	}
}

func TestLongCloseLeavesNothing(t *testing.T) {
	c := New(t) // what is opened once for all is open now
	must(t, c.Close())
	files, children := openFiles(t), ownChildren(t)

	c = New(t)
	standby, err := c.Standby()
	must(t, err)
	bouncer, err := c.PgBouncer("session", 1)
	must(t, err)
	must(t, c.Kill())
	must(t, c.Close())
	must(t, c.Close())

	for _, dir := range []string{c.home.dir, standby.home.dir, bouncer.home.dir} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory remains: %v", err)
		}
	}
	if got := openFiles(t); got != files {
		t.Errorf("%d open files, were %d", got, files)
	}
	if got := ownChildren(t); got != children {
		t.Errorf("%d child processes, were %d", got, children)
	}
	for name, call := range map[string]func() error{
		"StartAgain": c.StartAgain,
		"Restart":    func() error { return c.Restart(true) },
		"Standby":    func() error { _, err := c.Standby(); return err },
		"PgBouncer":  func() error { _, err := c.PgBouncer("session", 1); return err },
		"Freeze":     c.Freeze,
		"Thaw":       c.Thaw,
		"CreateDatabase": func() error {
			_, err := c.CreateDatabase(context.Background())
			return err
		},
	} {
		if call() == nil {
			t.Errorf("%s on a closed cluster: no error", name)
		}
	}
	must(t, c.Kill())
	must(t, c.Stop())
	if got := openFiles(t); got != files {
		t.Errorf("after calls on a closed cluster: %d open files, were %d", got, files)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	must(t, err)
	return len(entries)
}

func ownChildren(t *testing.T) int {
	t.Helper()
	table, err := processes()
	must(t, err)
	n := 0
	for _, p := range table {
		if p.parent == os.Getpid() { // zombies count
			n++
		}
	}
	return n
}
