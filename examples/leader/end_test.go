package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// ofProgram returns the process ids of the program and its instances, where the
// system lists them.
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

// frozen reports whether an instance is frozen.
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

// No instance outlives the program, however that ends, also while an instance is
// frozen. Where the program can say why it ends, it does not blame its instances.
func TestEndInFreeze(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the test finds instances that are left over in /proc, which only Linux has")
	}
	for name, signal := range map[string]os.Signal{"interrupted": os.Interrupt, "killed": os.Kill} {
		t.Run(name, func(t *testing.T) {
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			c := exec.Command(program)
			c.Env = append(os.Environ(), "DATABASE_URL="+pgtest.Database(t))
			c.Stdout, c.Stderr = out, out // no pipes: they would end with the last instance
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				for _, pid := range ofProgram(t) {
					if p, err := os.FindProcess(pid); err == nil {
						_ = p.Kill()
					}
				}
			})
			lockertest.Eventually(t, "an instance is frozen", func() bool { return frozen(t) })
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err == nil {
				t.Error("it ends as if all was well")
			}
			lockertest.Eventually(t, "no instance is left", func() bool { return len(ofProgram(t)) == 0 })
			said, err := os.ReadFile(out.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, blame := range []string{"no instance leads", "did not end when asked"} {
				if bytes.Contains(said, []byte(blame)) {
					t.Errorf("it says %q:\n%s", blame, said)
				}
			}
		})
	}
}
