package mariadbtest

import (
	"os"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/leaktest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Check(Main(m)))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestExecuteFails(t *testing.T) {
	t.Parallel()
	if err := New(t, "--read-only").Execute("SELECT no_such_column"); err == nil || !strings.Contains(err.Error(), "no_such_column") {
		t.Errorf("Execute: %v", err)
	}
}

// A server's log is not mapped into memory. From such a log a killed server may
// lose what was committed.
func TestKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	if log := New(t).Log(); !strings.Contains(log, "log sequence number") || strings.Contains(log, "memory-mapped") {
		t.Errorf("the log is mapped into memory, or the server does not say:\n%s", log)
	}
}

// deps.sh searches the directories that this package searches.
func TestDepsLooksInTheSamePlaces(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../pgtest/deps.sh")
	must(t, err)
	for _, dir := range programDirs {
		if !strings.Contains(string(script), dir) {
			t.Errorf("deps.sh does not look in %s", dir)
		}
	}
}
