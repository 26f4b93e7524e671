package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Places that have leaked count in each quantile that they would be in.
func TestReport(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	report(&out, []Result{
		{Kind: "locks", Broken: 4, Freed: 5e6, After: []time.Duration{4 * time.Millisecond, 1e6, 3e6, 2e6}},
		{Kind: "counters", Broken: 4, After: []time.Duration{1e6, 2e6, 3e6}},
		{Kind: "nothing", Broken: 4},
	})
	want := map[string]string{
		"locks":    "4 5ms 4 2ms 4ms 4ms 0",
		"counters": "4 - 3 2ms never never 1",
		"nothing":  "4 - 0 never never never 4",
	}
	for line := range strings.Lines(out.String()) {
		fields := strings.Fields(line)
		if len(fields) == 0 || want[fields[0]] == "" {
			continue
		}
		if got := strings.Join(fields[1:], " "); got != want[fields[0]] {
			t.Errorf("%s: %s, want %s", fields[0], got, want[fields[0]])
		}
		delete(want, fields[0])
	}
	if len(want) > 0 {
		t.Errorf("no line for %v in\n%s", want, out.String())
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for args, ok := range map[string]bool{
		"":                       true,
		"-streams 2000 -wait 1s": true,
		"-streams 0":             false,
		"-streams 30":            false,
		"-wait 0s":               false,
		"-timeout -1s":           false,
		"serve":                  false,
	} {
		if _, err := parseFlags(strings.Fields(args)); (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}
