package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// ofProgram is the process ids of the program, and of its candidates, where the system lists them.
func ofProgram(t *testing.T) (pids []int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return nil
	}
	all, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil || len(all) == 0 {
		t.Fatalf("processes: %v, %v", all, err)
	}
	for _, exe := range all {
		if of, err := os.Readlink(exe); err == nil && of == program {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(exe)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// frozen reports whether a candidate is.
func frozen(t *testing.T) bool {
	t.Helper()
	for _, pid := range ofProgram(t) {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err == nil && bytes.Contains(status, []byte("State:\tT")) {
			return true
		}
	}
	return false
}

// However the program ends while a candidate is frozen, none outlives it; and where it can say why it ends, it
// does not blame its candidates.
func TestEndInFreeze(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no list of processes")
	}
	for name, signal := range map[string]os.Signal{"interrupted": syscall.SIGINT, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			c := exec.Command(program)
			c.Env = append(os.Environ(), "DATABASE_URL="+pgtest.Database(t))
			c.Stdout, c.Stderr = out, out // no pipes: they would end with the last candidate
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				for _, pid := range ofProgram(t) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			lockertest.Eventually(t, "a candidate is frozen", func() bool { return frozen(t) })
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err == nil {
				t.Error("it ends as if all was well")
			}
			lockertest.Eventually(t, "no candidate is left", func() bool { return len(ofProgram(t)) == 0 })
			said, err := os.ReadFile(out.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, blame := range []string{"nobody leads", "had to be killed"} {
				if bytes.Contains(said, []byte(blame)) {
					t.Errorf("it says %q:\n%s", blame, said)
				}
			}
		})
	}
}
