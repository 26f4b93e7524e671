package demo

import (
	"io"
	"slices"
	"testing"
	"time"
)

// The demonstration's verdict is an error if two led at once, if a later token is
// not greater, or if a leader had no successor.
func TestResult(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	enough := make([]term, rounds*len(endings)+1)
	for i := range enough {
		enough[i] = term{instance: i, token: string(rune('a' + i)), first: at(10 * i), last: at(10*i + 9)}
	}
	for name, spoil := range map[string]func([]term) []term{
		"a leader that goes on":               func(r []term) []term { r[1].last = at(25); return r },
		"one that goes on beside several":     func(r []term) []term { r[0].last = at(100); return r },
		"one that begins before another ends": func(r []term) []term { r[2].first = at(19); return r },
		"a token of before":                   func(r []term) []term { r[3].token = "a"; return r },
		"too few":                             func(r []term) []term { return r[1:] },
	} {
		if err := printResult(io.Discard, spoil(slices.Clone(enough))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := printResult(io.Discard, enough); err != nil {
		t.Errorf("one after the other: %v", err)
	}
}
