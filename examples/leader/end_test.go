package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess/programtest"
)

// The demonstration ends leaders by an exit, a kill and a freeze. Its account is
// right, and it leaves nothing behind.
func TestLongDemo(t *testing.T) {
	const endings, each = 6, 2 // of leaders, and of leaders in each way
	places := map[string]func(t *testing.T) string{
		"throwaway server": func(*testing.T) string { return "" },
		"DATABASE_URL":     func(t *testing.T) string { return pgtest.Database(t) },
	}
	for name, url := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := programtest.Command(t)
			c.Env = append(c.Env, "DATABASE_URL="+url(t))
			out := programtest.Output(t, c)
			for pattern, want := range map[string]int{
				`(?m)^LEADER +FROM +TO +WORK +TOKEN$`:                            1,
				`(?m)^instance \d+ +\d+\.\d+ s +\d+\.\d+ s +\d+ +[0-9a-f-]{50}$`: endings + 1,
				`(?m)^instance \d+ +exit +instance \d+ +\S+s +leads: \[\d+\]`:    each,
				`(?m)^instance \d+ +kill -9 +instance \d+ +\S+s +leads: \[\d+\]`: each,
				// One that was frozen neither answers nor, awake, calls itself
				// leader.
				`(?m)^instance \d+ +freeze +instance \d+ +\S+s +leads: \[\d+\], 1 silent +leads: \[\d+\]$`: each,
				`(?m)^OK: \d+ terms, never two at once`:                                                    1,
			} {
				if found := regexp.MustCompile(pattern).FindAllString(out, -1); len(found) < want {
					t.Errorf("%d times %s, want %d, in\n%s", len(found), pattern, want, out)
				}
			}
		})
	}
}

// frozen reports whether a child of a process is frozen.
func frozen(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, child := range strings.Fields(string(children)) {
			status, err := os.ReadFile(filepath.Join("/proc", child, "status"))
			if err == nil && bytes.Contains(status, []byte("State:\tT")) {
				return true
			}
		}
	}
	return false
}

// No instance outlives the program, however that ends, also while an instance is
// frozen. Where the program can say why it ends, it does not blame its instances.
func TestLongEndInFreeze(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the test finds a frozen instance in /proc, which only Linux has")
	}
	for name, signal := range map[string]os.Signal{"interrupted": os.Interrupt, "killed": os.Kill} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said bytes.Buffer
			c := programtest.Command(t)
			c.Env = append(c.Env, "DATABASE_URL="+pgtest.Database(t))
			c.Stderr = &said // the instances inherit this pipe, so Wait waits for the end of each
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Process.Kill() })
			lockertest.Eventually(t, "an instance is frozen", func() bool { return frozen(c.Process.Pid) })
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err == nil {
				t.Error("it ends as if all was well")
			}
			for _, blame := range []string{"no instance leads", "did not end when asked"} {
				if strings.Contains(said.String(), blame) {
					t.Errorf("it says %q:\n%s", blame, &said)
				}
			}
		})
	}
}
