package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

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
		if built.dir, built.err = os.MkdirTemp("", "cron-test-"); built.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", built.dir, "../..").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "cron")
}

func removeProgram() error {
	if built.dir == "" {
		return nil
	}
	return os.RemoveAll(built.dir)
}
