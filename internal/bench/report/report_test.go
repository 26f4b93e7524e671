package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// small is results of a few contenders, as if the kit were so many times as
// fast as one connection per lock.
func small(factor float64) *results.Results {
	r := &results.Results{
		Machine:  results.Machine{CPU: "a processor", Cores: 2, Memory: 8 << 30, OS: "linux", Go: "go1.26"},
		Versions: map[string]string{"PostgreSQL": "15"}, Settings: map[string]string{"PostgreSQL fsync": "off"},
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: time.Minute,
	}
	add := func(scenario, contender, variant string, x int, rate float64) {
		s := &results.Series{Scenario: scenario, Contender: contender, Variant: variant, X: x}
		for i := range 3 {
			s.Rounds = append(s.Rounds, results.Round{
				Rate: rate * (1 + float64(i)/10), P50: time.Millisecond, P99: 2 * time.Millisecond,
				ClientCPU: 5 * time.Microsecond, ServerCPU: 3 * time.Microsecond, Extra: map[string]float64{"connections": 1},
			})
		}
		r.Series = append(r.Series, s)
	}
	for _, x := range []int{1, 8, 64, 512, 4096} {
		add("pairs", locks.KitPgx, "", x, factor*1e4)
		add("pairs", locks.PerConnectionPgx, "", x, 1e4)
		add("pairs", "rueidis", "", x, 5e4)
	}
	add("held", locks.KitPgx, HeldByDefault, 100, 1e5)
	add("held", locks.KitPgx, HeldByDefault, 5000, 9e4)
	add("a new scenario", locks.KitPgx, "", 7, 1234)
	return r
}

func TestGoalStatus(t *testing.T) {
	more, less := goal{floor: 2, goal: 4}, goal{floor: 4, goal: 2, less: true}
	spread := func(v float64) results.Spread { return results.Spread{Median: v, Rounds: 1} }
	tests := []struct {
		name string
		goal goal
		s    results.Spread
		want status
	}{
		{"more, goal", more, spread(4), goalMet},
		{"more, floor", more, spread(2), floorMet},
		{"more, neither", more, spread(1.9), floorMissed},
		{"less, goal", less, spread(2), goalMet},
		{"less, floor", less, spread(4), floorMet},
		{"less, neither", less, spread(4.1), floorMissed},
		{"not measured", less, results.Spread{}, notMeasured},
	}
	for _, tt := range tests {
		if got := tt.goal.statusOf(tt.s); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Each goal can be met, and missed: its floor is not beyond its goal.
func TestGoals(t *testing.T) {
	for _, g := range goals() {
		if g.less && g.floor < g.goal || !g.less && g.floor > g.goal {
			t.Errorf("%s: the floor %v is beyond the goal %v", g.what, g.floor, g.goal)
		}
		if v := g.statusOf(g.measure(&results.Results{})); v != notMeasured {
			t.Errorf("%s: %q of nothing", g.what, v)
		}
	}
}

// Print has a table for each scenario, and the goals whose figures were
// measured. A quick run has the goals alone.
func TestPrint(t *testing.T) {
	quick := small(1)
	quick.Quick = true
	var slow, fast bytes.Buffer
	if err := errors.Join(Print(&slow, quick), Print(&fast, small(30))); err != nil {
		t.Fatal(err)
	}
	if got := slow.String(); !strings.Contains(got, "floor not met") || strings.Contains(got, "not measured") || strings.Contains(got, "##") {
		t.Errorf("printed:\n%s", got)
	}
	lines := strings.Join(strings.Fields(fast.String()), " ")
	for _, want := range []string{
		"| " + locks.KitPgx + " | 330k", // the median of the rounds
		"a processor, 2 cores, 8 GiB", "PostgreSQL fsync = off", "## a new scenario",
		"pairs/s, 64 callers, against a connection per lock, pgx ≥ 4.50× ≥ 8.00× 30.0× goal met",
		"pairs/s, 64 callers, against the fastest Redis client of all ≥ 1.50× ≥ 3.00× 6.00× goal met",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q was not printed:\n%s", want, fast.String())
		}
	}
}

func TestUnits(t *testing.T) {
	tests := []struct {
		got, want string
	}{
		{times(11.04), "11.0×"},
		{times(0.951), "0.95×"},
		{fraction(1. / 50), "1/50"},
		{fraction(1. / 2.5), "1/2.50"},
		{fraction(1.2), "1.20×"},
		{milliseconds(0.00234), "2.34 ms"},
		{duration(0.00234), "2.34 ms"},
		{duration(0.0000234), "23.4 µs"},
		{duration(86e-9), "86 ns"},
		{rate(195_812), "196k"},
		{rate(5_400_000), "5.40M"},
		{count(1), "1"},
		{spreadText(results.Spread{Median: 2, Min: 1, Max: 3, Rounds: 3}, times), "2.00× (1.00×–3.00×)"},
		{spreadText(results.Spread{}, times), "–"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}
