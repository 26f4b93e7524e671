package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := mariadbtest.Close(pgtest.Main(m))
	if err := removeProgram(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// built is the program, as a reader's go run builds it, in a directory of its own.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// build builds the program once for all tests.
func build(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		//nolint:usetesting // it is for all tests
		if built.dir, built.err = os.MkdirTemp("", "quickstart-test-"); built.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", built.dir, ".").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "quickstart")
}

func removeProgram() error {
	if built.dir == "" {
		return nil
	}
	return os.RemoveAll(built.dir)
}

// command is the program on a place's database, with a directory of its own for
// what is temporary.
func command(t *testing.T, databaseURL string, args ...string) (_ *exec.Cmd, tempDir string) {
	t.Helper()
	tempDir = t.TempDir()
	c := exec.Command(build(t), args...)
	c.Env = append(os.Environ(), "DATABASE_URL="+databaseURL, "TMPDIR="+tempDir)
	return c, tempDir
}

// leavesNothing checks that dir, the temporary directory of the program that has
// ended, is empty.
func leavesNothing(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
