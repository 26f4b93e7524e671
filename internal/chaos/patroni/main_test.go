//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/sandbox"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

func TestMain(m *testing.M) {
	network.Enter()
	worker.Main()
	sandbox.Main(round.Run)
	subprocess.Main("temporary", holdTemporary)
	os.Exit(m.Run())
}

func TestFlags(t *testing.T) {
	tests := []struct {
		args string
		want string // in the error; empty: none
	}{
		{"", ""},
		{"-each 200 -rows 1,5 -clusters 2", ""},
		{"-ttl 30s -loop 10s -retry 10s -lease 10s", ""},
		{"-ttl 4s", "loop + 2 retry"},
		{"-loop 100ms", "at least 1s"},
		{"-each 0", "must be positive"},
		{"-rows 1,99", "no kind"},
		{"-out /run/x", "below /run"},
		{"twice", "flags only"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			_, err := parse(strings.Fields(tt.args), io.Discard)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestSameServer(t *testing.T) {
	a, b := &round.Result{Index: 1, Server: "a"}, &round.Result{Index: 2, Server: "b"}
	if err := sameServer([]*round.Result{a, a}); err != nil {
		t.Error(err)
	}
	if err := sameServer([]*round.Result{a, a, b}); err == nil || !strings.Contains(err.Error(), "round 2 on b") {
		t.Errorf("%v", err)
	}
}

// A campaign goes on where it was interrupted, and faults that a round has not
// injected come again.
func TestPlan(t *testing.T) {
	o, err := parse([]string{"-each", "4", "-rows", "1,2", "-round", "5", "-seed", "7", "-out", t.TempDir()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.resume()
	if err != nil {
		t.Fatal(err)
	}
	first, ok := p.next()
	if !ok || len(first.Rows) != 5 || first.Index != 1 {
		t.Fatalf("first round: %+v, %t", first, ok)
	}
	if again, _ := o.resume(); again != nil {
		if same, _ := again.next(); !reflect.DeepEqual(same, first) {
			t.Errorf("another run of the seed begins with %+v, want %+v", same, first)
		}
	}
	got := &round.Result{Index: 1, Outcomes: []round.Outcome{{Row: first.Rows[0]}, {Row: first.Rows[1], Stuck: "for good"}}}
	text, err := json.Marshal(got)
	if err == nil {
		err = os.WriteFile(first.Result, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.done(first, got, nil); err != nil {
		t.Fatal(err)
	}
	resumed, err := o.resume()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*plan{p, resumed} {
		count := map[int]int{} // the faults of a round that was stuck come again
		for {
			orders, ok := p.next()
			if !ok {
				break
			}
			for _, row := range orders.Rows {
				count[row]++
			}
		}
		if want := map[int]int{1: 4, 2: 4}; !reflect.DeepEqual(count, want) {
			t.Errorf("faults of each kind: %v, want %v", count, want)
		}
	}
}

// A later run with the same -out has the same settings.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		args string
		want string // in the error; empty: none
		seed uint64
	}{
		{"-seed 7", "", 7},
		{"-each 9", "", 7},
		{"-seed 7 -clusters 2", "", 7},
		{"-seed 8", "other settings", 8},
		{"-ttl 30s", "other settings", 7},
		{"-lease 3s", "other settings", 7},
	} {
		o, err := parse(append(strings.Fields(tt.args), "-out", dir), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.settle(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || o.seed != tt.seed {
			t.Errorf("%s: seed %d, %v; want %d, %q", tt.args, o.seed, err, tt.seed, tt.want)
		}
	}
}

// After its time is over a run begins no round, and says what is missing.
func TestFor(t *testing.T) {
	o, err := parse([]string{"-each", "2", "-rows", "1,3", "-for", "1ns", "-out", t.TempDir()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.rounds(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "4 faults are missing") {
		t.Errorf("%v", err)
	}
}

// When nothing is missing, the table is printed without the programs.
func TestNothingMissing(t *testing.T) {
	t.Setenv("PATH", "")
	dir := t.TempDir()
	text, err := json.Marshal(&round.Result{Index: 1, Server: "PostgreSQL", Outcomes: []round.Outcome{{Row: 1}}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "round-0001.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	if err := run(t.Context(), []string{"-each", "1", "-rows", "1", "-out", dir}, &stdout, t.Output()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stdout.String(), "| switchover | 1 |") {
		t.Errorf("%s", &stdout)
	}
	if err := run(t.Context(), []string{"-each", "2", "-rows", "1", "-out", dir}, &stdout, t.Output()); err == nil || !strings.Contains(err.Error(), "patroni") {
		t.Errorf("one is missing: %v", err)
	}
}

// A round that fails as a whole is repeated, but not for ever.
func TestFailedRounds(t *testing.T) {
	o, err := parse([]string{"-each", "1", "-rows", "1", "-out", t.TempDir()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.resume()
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for i := range maxFailures {
		orders, ok := p.next()
		if !ok || len(orders.Rows) != 1 {
			t.Fatalf("after %d failures: %+v, %t", i, orders, ok)
		}
		if err := p.done(orders, nil, broken); (err != nil) != (i+1 == maxFailures) {
			t.Errorf("failure %d: %v", i+1, err)
		}
	}
}

func TestMarkdown(t *testing.T) {
	o, err := parse([]string{"-seed", "7", "-pre-vote=false", "-for", "1h", "-rows", "1,4,8"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	results := []*round.Result{
		{Index: 2, Server: "PostgreSQL", Outcomes: []round.Outcome{{Row: 4, Lost: 1, Told: []time.Duration{3 * time.Millisecond}, Spared: 1, Two: []time.Duration{time.Second}, Excused: 2, Longest: 5 * time.Millisecond}}},
		{Index: 1, Server: "PostgreSQL", Outcomes: []round.Outcome{
			{Row: 4, Lost: 2, Told: []time.Duration{1 * time.Millisecond, 2 * time.Millisecond}, Served: []time.Duration{time.Second}, Missing: 4, News: 1},
			{Row: 8, Missing: 2, Cancelled: 1, Minority: round.Minority{Told: 1, Refused: 3, Lost: 1, Kept: 1, Rejected: 1}},
			{Row: 1},
		}},
		{Index: 3, Server: "PostgreSQL", Outcomes: []round.Outcome{{Row: 4, Lost: 9, Missing: 9}, {Row: 1, Stuck: "for good"}}},
	}
	text := o.markdown(results)
	for _, want := range []string{
		"`go run ./patroni -pre-vote=false -rows=1,4,8 -seed=7`",
		"| 4 | leader's node cut off | 2 | 3 | 2 / 3 / 3 ms | 1000 / 1000 / 1000 ms | 1 of 2 | 1 times, longest 1000 ms | 2 (longest 5 ms) | 0, and 1 until the news arrived | 4 | – | 0.0 s | ok |",
		"| 1 | switchover | 1 | 0 | – | – | 0 of 0 | 0 | 0 | 0 | 0 | – | 0.0 s | ok; 1 more, and all of their rounds, not counted: the round had no regular end |",
		"| 8 | leader's Patroni frozen longer than the ttl | 1 | 0 | – | – | 0 of 0 | 0 | 0 | 0 | 2, and 1 that were cancelled | 1 told before; 3 refused; of the commits on the old one 1 lost and 1 kept; 1 not acknowledged | 0.0 s | ok |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line\n%s\nin\n%s", want, text)
		}
	}
	if err := violations(append(results, results...)); err == nil || !strings.Contains(err.Error(), "was stuck: for good") {
		t.Errorf("two of twelve faults are stuck: %v", err)
	}
	if err := violations(results); err != nil {
		t.Errorf("violations: %v", err)
	}
	results[0].Violations = []string{"a promise"}
	if err := violations(results); err == nil {
		t.Error("a violation is not reported")
	}
}
