package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// built is the program, as `go run` builds it, in a directory of its own.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// command returns the program on a database, with a temporary directory of its own.
func command(t *testing.T, databaseURL string, args ...string) *exec.Cmd {
	t.Helper()
	built.once.Do(func() {
		//nolint:usetesting // it is for all tests
		if built.dir, built.err = os.MkdirTemp("", "webhook-test-"); built.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", built.dir, ".").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	tempDir := t.TempDir()
	t.Cleanup(func() {
		if left, err := os.ReadDir(tempDir); err != nil || len(left) > 0 {
			t.Errorf("it leaves %v, %v", left, err)
		}
	})
	c := exec.Command(filepath.Join(built.dir, "webhook"), args...)
	c.Env = append(os.Environ(), "DATABASE_URL="+databaseURL, "TMPDIR="+tempDir, "WEBHOOK_SECRET=s3cret")
	return c
}
