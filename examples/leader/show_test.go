package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestShow(t *testing.T) {
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
				`(?m)^LEADER +FROM +TO +DEEDS +TOKEN$`:                             1,
				`(?m)^candidate \d+ +\d+\.\d+ s +\d+\.\d+ s +\d+ +[0-9a-f-]{50}$`:  rounds*len(ways) + 1,
				`(?m)^candidate \d+ +exit +candidate \d+ +\S+s +leads: \[\d+\]`:    rounds,
				`(?m)^candidate \d+ +kill -9 +candidate \d+ +\S+s +leads: \[\d+\]`: rounds,
				// One that was frozen neither answers nor, awake, calls itself leader.
				`(?m)^candidate \d+ +freeze +candidate \d+ +\S+s +leads: \[\d+\], 1 silent +leads: \[\d+\]$`: rounds,
				`(?m)^OK: \d+ terms, never two at once`:                                                      1,
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

func TestVerdict(t *testing.T) {
	enough := make([]reign, rounds*len(ways)+1)
	for i := range enough {
		enough[i] = reign{number: i, token: string(rune('a' + i)), first: int64(10 * i), last: int64(10*i + 9), deeds: 2}
	}
	change := func(f func([]reign)) []reign {
		changed := append([]reign(nil), enough...)
		f(changed)
		return changed
	}
	tests := []struct {
		name   string
		reigns []reign
		ok     bool
	}{
		{"one after the other", enough, true},
		{"a leader that goes on", change(func(r []reign) { r[1].last = 25 }), false},
		{"one that goes on beside several", change(func(r []reign) { r[0].last = 100 }), false},
		{"a look that began before the next led", change(func(r []reign) { r[1].first, r[1].last = 20, 20 }), false},
		{"a token of before", change(func(r []reign) { r[3].token = "a" }), false},
		{"too few", enough[1:], false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := printVerdict(io.Discard, tt.reigns); (err == nil) != tt.ok {
				t.Errorf("verdict: %v", err)
			}
		})
	}
}

// What the chronicle holds certain is within the looks, not their whole length.
func TestChronicle(t *testing.T) {
	var c chronicle
	for _, r := range []report{
		{Number: 1, Term: 1, From: 10, To: 12},
		{Number: 1, Term: 1, From: 20, To: 500}, // frozen in the middle of a look
		{Number: 2, Term: 1, From: 100, To: 101},
		{Number: 2, Term: 1, From: 110, To: 111},
	} {
		c.add(r)
	}
	got := c.inOrder()
	if len(got) != 2 || got[0].first != 12 || got[0].last != 20 || got[1].first != 101 || overlaps(got) != 0 {
		t.Errorf("reigns: %+v", got)
	}
	if r := c.after(time.Unix(0, 15), 1); r == nil || r.number != 2 {
		t.Errorf("after 15, not 1: %+v", r)
	}
	if r := c.after(time.Unix(0, 15), 2); r == nil || r.number != 1 {
		t.Errorf("after 15, not 2: %+v", r)
	}
	if r := c.after(time.Unix(0, 110), 0); r != nil {
		t.Errorf("after the last: %+v", r)
	}
}

func TestUnknownDatabase(t *testing.T) {
	c := exec.Command(program)
	c.Env = append(os.Environ(), "DATABASE_URL=postgres://ann:secret@127.0.0.1:1/none")
	out, err := c.CombinedOutput()
	if err == nil || bytes.Contains(out, []byte("secret")) || bytes.Contains(out, []byte("127.0.0.1")) {
		t.Errorf("it ends with %v\n%s", err, out)
	}
}
