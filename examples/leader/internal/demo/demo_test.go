package demo

import (
	"io"
	"testing"
	"time"
)

func at(n int) time.Time { return time.Unix(0, int64(n)) }

// The result is an error if two led at once, or a later token is not greater.
func TestResult(t *testing.T) {
	enough := make([]term, rounds*len(endings)+1)
	for i := range enough {
		enough[i] = term{instance: i, token: string(rune('a' + i)), first: at(10 * i), last: at(10*i + 9), works: 2}
	}
	change := func(f func([]term)) []term {
		changed := append([]term(nil), enough...)
		f(changed)
		return changed
	}
	tests := []struct {
		name  string
		terms []term
		ok    bool
	}{
		{"one after the other", enough, true},
		{"a leader that goes on", change(func(r []term) { r[1].last = at(25) }), false},
		{"one that goes on beside several", change(func(r []term) { r[0].last = at(100) }), false},
		{"a look that began before the next led", change(func(r []term) { r[1].first, r[1].last = at(20), at(20) }), false},
		{"a token of before", change(func(r []term) { r[3].token = "a" }), false},
		{"too few", enough[1:], false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := printResult(io.Discard, tt.terms); (err == nil) != tt.ok {
				t.Errorf("result: %v", err)
			}
		})
	}
}

// A term is certain between the works, not for their whole length.
func TestHistory(t *testing.T) {
	var h history
	for _, w := range []struct{ instance, from, to int }{
		{1, 10, 12},
		{1, 20, 500}, // frozen in the middle of its work
		{2, 100, 101},
		{2, 110, 111},
	} {
		h.add(w.instance, work{Term: 1, From: at(w.from), To: at(w.to)})
	}
	got := h.inOrder()
	if len(got) != 2 || !got[0].first.Equal(at(12)) || !got[0].last.Equal(at(20)) || !got[1].first.Equal(at(101)) || overlaps(got) != 0 {
		t.Errorf("terms: %+v", got)
	}
	if r := h.after(at(15), 1); r == nil || r.instance != 2 {
		t.Errorf("after 15, not 1: %+v", r)
	}
	if r := h.after(at(15), 2); r == nil || r.instance != 1 {
		t.Errorf("after 15, not 2: %+v", r)
	}
	if r := h.after(at(110), 0); r != nil {
		t.Errorf("after the last: %+v", r)
	}
}
