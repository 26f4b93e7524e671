//go:build linux

package main

import (
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
)

func TestFlags(t *testing.T) {
	tests := []struct {
		args string
		want string // in the error; empty: none
	}{
		{"", ""},
		{"-each 200 -rows 1,5", ""},
		{"-each 0", "must be positive"},
		{"-rows 1,99", "no such kind"},
		{"twice", "flags only"},
	}
	for _, tt := range tests {
		if _, err := parse(strings.Fields(tt.args), io.Discard); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
	o, err := parse([]string{"-rows", "4,5", "-lease", "30s", "-seed", "7"}, io.Discard)
	if want := "go run ./patroni -lease=30s -rows=4,5 -seed=7"; err != nil || o.command != want {
		t.Errorf("%q, %v; want %q", o.command, err, want)
	}
}

// The faults of a round that fails or gets stuck come again, but not for ever.
func TestRounds(t *testing.T) {
	o, err := parse([]string{"-each", "8", "-rows", "1,2,4", "-seed", "7"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	count := map[int]int{}
	results, err := o.rounds(t.Context(), func(orders round.Orders) (*round.Result, error) {
		if orders.Index == 1 {
			return &round.Result{Stuck: "for good"}, nil
		}
		for _, row := range orders.Rows {
			count[row]++
		}
		return &round.Result{}, nil
	})
	if want := map[int]int{1: 8, 2: 8, 4: 8}; err != nil || len(results) != 3 || !maps.Equal(count, want) {
		t.Errorf("%v, %d rounds, faults %v; want %v", err, len(results), count, want)
	}
	broken, n := errors.New("broken"), 0
	_, err = o.rounds(t.Context(), func(round.Orders) (*round.Result, error) { n++; return nil, broken })
	if !errors.Is(err, broken) || n != 2 {
		t.Errorf("%v after %d rounds that failed", err, n)
	}
}

func TestMarkdown(t *testing.T) {
	o, err := parse([]string{"-seed", "7", "-rows", "1,4,8"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	results := []*round.Result{
		{
			Server: "PostgreSQL", Times: map[int]*check.Times{4: {Told: []time.Duration{3 * time.Millisecond}}},
			Outcomes: []round.Outcome{{Row: 4, Excused: []time.Duration{5 * time.Millisecond}, Refused: 1}},
		},
		{
			Server: "PostgreSQL", Times: map[int]*check.Times{4: {Told: []time.Duration{time.Millisecond}, Back: []time.Duration{time.Second}}},
			Outcomes: []round.Outcome{{Row: 4, Missing: 4}, {Row: 1}},
		},
		{Server: "PostgreSQL", Stuck: "for good", Outcomes: []round.Outcome{{Row: 4, Missing: 9}}},
	}
	text := o.markdown(results)
	for _, want := range []string{
		"3 faults in 2 rounds, and 1 rounds without a regular end: `go run ./patroni -rows=1,4,8 -seed=7`",
		"| 4 | leader's node cut off | 2 | 2 | 3 ms | 1000 ms / 1000 ms | 1: 5 ms | 4 | 1 | 0 |",
		"| 1 | switchover | 1 | 0 | – | – / – | 0: – | 0 | 0 | 0 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line\n%s\nin\n%s", want, text)
		}
	}
	if err := violations(results); err != nil {
		t.Errorf("violations: %v", err)
	}
	results[2].Violations = []string{"a promise"}
	if err := violations(results); err == nil || !strings.Contains(err.Error(), "a promise") {
		t.Errorf("a violation is not reported: %v", err)
	}
}
