// Package programtest runs a program under test inside of its test binary, so
// that no test waits for a build:
//
//	func TestMain(m *testing.M) {
//		programtest.Main(main)
//		os.Exit(m.Run())
//	}
//
//	out, err := programtest.Command(t, "-flag").CombinedOutput()
//
// What TestMain does before Main holds for the program, too.
package programtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// variable is set in the environment of a process that Command has started, and
// of those that this process starts.
const variable = "LATCHKEY_TEST_PROGRAM"

// Main calls main and exits, in a process that [Command] has started. In any
// other process it does nothing.
func Main(main func()) {
	if os.Getenv(variable) == "" {
		return
	}
	main()
	os.Exit(0)
}

// Command returns the program with args. It has a temporary directory of its
// own, in which it must leave nothing. Tests add to the command's Env.
func Command(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	tempDir := tb.TempDir()
	tb.Cleanup(func() {
		if left, err := os.ReadDir(tempDir); err != nil || len(left) > 0 {
			tb.Errorf("the program leaves %v, %v", left, err)
		}
	})
	c := exec.Command(self, args...) //nolint:gosec,noctx // this very binary, which the test ends
	c.Env = append(os.Environ(), variable+"=1", "TMPDIR="+tempDir)
	return c
}

// Output runs c, which must succeed and write nothing to its standard error. It
// returns what c has printed.
func Output(tb testing.TB, c *exec.Cmd) string {
	tb.Helper()
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil || stderr.Len() > 0 {
		tb.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	return string(out)
}
