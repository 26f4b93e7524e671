package integrations_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
)

// build builds a program in dir, and returns its path.
func build(t *testing.T, dir, pkg string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(pkg)+".exe") // Windows wants a suffix
	c := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-o", program}, flags...), pkg)...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// golang-migrate's command runs three times at once on one file of SQLite, for
// which it has no lock that other processes see. Under latchkey run every
// migration runs once, and no command fails. The log has how it is without.
func TestLongCommand(t *testing.T) {
	const rounds, processes, migrations = 5, 3, 5
	files := t.TempDir()
	for i := range migrations {
		statement := "CREATE TABLE IF NOT EXISTS ran (n int); INSERT INTO ran VALUES (%d);"
		name := filepath.Join(files, fmt.Sprintf("%d_work.up.sql", i+1))
		if err := os.WriteFile(name, fmt.Appendf(nil, statement, i+1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	migrate := build(t, ".", "github.com/golang-migrate/migrate/v4/cmd/migrate", "-tags=sqlite")
	latchkey := build(t, "../../sqllock/cmd/latchkey", "./../latchkey")
	for name, command := range map[string][]string{
		"latchkey run":   {latchkey, "run", "-w", "600", "migrations:app", "--", migrate},
		"without a lock": {migrate},
	} {
		bad, failed := 0, 0
		for range rounds {
			dir := t.TempDir()
			data := filepath.Join(dir, "data.db")
			args := append(command[1:], "-path", files, "-database", "sqlite://"+filepath.ToSlash(data)+"?_pragma=busy_timeout(30000)", "up")
			var all []*exec.Cmd
			for range processes {
				c := exec.CommandContext(t.Context(), command[0], args...)
				c.Env = append(os.Environ(), "DATABASE_URL=sqlite:"+filepath.Join(dir, "locks.db"))
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				all = append(all, c)
			}
			before := failed
			for _, c := range all {
				if c.Wait() != nil {
					failed++
				}
			}
			if failed > before || dbtest.Number(t, openFile(t, data), "SELECT count(*) FROM ran") != migrations {
				bad++
			}
		}
		t.Logf("%s: of %d rounds %d are bad, and of %d commands %d fail", name, rounds, bad, rounds*processes, failed)
		if len(command) > 1 && bad > 0 {
			t.Error("want no bad round")
		}
	}
}
