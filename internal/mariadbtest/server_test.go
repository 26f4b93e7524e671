package mariadbtest

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

func TestMain(m *testing.M) {
	subprocess.Main(orphanRole, startAndWaitForDeath)
	os.Exit(leaktest.Check(Main(m)))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A server keeps its data when it is stopped, killed or frozen, and leaves no file.
func TestLongServer(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s, err := Start()
	must(t, err)
	defer s.Close()
	t.Logf("started after %v", time.Since(began).Round(time.Millisecond))
	must(t, s.Execute("CREATE DATABASE kept"))
	for name, end := range map[string]func() error{"Stop": s.Stop, "Kill": s.Kill} {
		must(t, end())
		if greets("unix", socket(s.Dir())) {
			t.Errorf("after %s the server responds", name)
		}
		must(t, s.StartAgain())
		if err := s.StartAgain(); err == nil {
			t.Error("StartAgain of a server that runs succeeded")
		}
		must(t, s.Execute("USE kept"))
	}
	must(t, s.Freeze())
	if greets("unix", socket(s.Dir())) {
		t.Error("a frozen server responds")
	}
	must(t, s.Thaw())
	must(t, s.Execute("USE kept"))
	must(t, s.Freeze()) // Close must end it all the same
	must(t, s.Close())
	if _, err := os.Stat(s.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close the directory is there: %v", err)
	}
	must(t, s.Close())
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
