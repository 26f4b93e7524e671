package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// The demonstration runs, its account is right, and it leaves nothing behind.
func TestDemo(t *testing.T) {
	const endings, each = 6, 2 // of leaders, and of leaders in each way
	places := map[string]func(t *testing.T) string{
		"throwaway server": func(*testing.T) string { return "" },
		"DATABASE_URL":     func(t *testing.T) string { return pgtest.Database(t) },
	}
	for name, url := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tempDir := t.TempDir()
			var stdout, stderr bytes.Buffer
			c := exec.Command(program)
			c.Env = append(os.Environ(), "DATABASE_URL="+url(t), "TMPDIR="+tempDir)
			c.Stdout, c.Stderr = &stdout, &stderr
			if err := c.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
			}
			if stderr.Len() > 0 {
				t.Errorf("it complains:\n%s", &stderr)
			}
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
				if found := regexp.MustCompile(pattern).FindAll(stdout.Bytes(), -1); len(found) < want {
					t.Errorf("%d times %s, want %d, in\n%s", len(found), pattern, want, &stdout)
				}
			}
			if left, err := os.ReadDir(tempDir); err != nil || len(left) > 0 {
				t.Errorf("it leaves %v, %v", left, err)
			}
		})
	}
	t.Cleanup(func() {
		if left := len(ofProgram(t)); left > 0 {
			t.Errorf("%d processes are left", left)
		}
	})
}

// A DATABASE_URL that leads nowhere is an error that does not show it.
func TestUnknownDatabase(t *testing.T) {
	c := exec.Command(program)
	c.Env = append(os.Environ(), "DATABASE_URL=postgres://ann:secret@127.0.0.1:1/none")
	out, err := c.CombinedOutput()
	if err == nil || bytes.Contains(out, []byte("secret")) || bytes.Contains(out, []byte("127.0.0.1")) {
		t.Errorf("it ends with %v\n%s", err, out)
	}
}
