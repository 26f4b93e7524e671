package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	subprocess.Main(waiterRole, beWaiter)
	os.Exit(pgtest.Main(m))
}

func TestParse(t *testing.T) {
	all := []string{"pairs", "one processor", "arrivals", "held", "refusals", "http", "metrics", "stacks", "waiters", "hand-over"}
	tests := []struct {
		args   []string
		rounds int
		runs   []string
	}{
		{nil, 5, all},
		{[]string{"-quick"}, 2, []string{"pairs", "refusals"}},
		{[]string{"-quick", "-rounds", "3"}, 3, []string{"pairs", "refusals"}},
		{[]string{"-scenarios", "held,one processor"}, 5, []string{"held", "one processor"}},
	}
	for _, tt := range tests {
		p, err := parse(tt.args, io.Discard)
		var runs []string
		for _, s := range p.chosen {
			runs = append(runs, s.name)
		}
		if err != nil || p.rounds != tt.rounds || !slices.Equal(runs, tt.runs) {
			t.Errorf("%q: %d rounds of %q, %v; want %d of %q", tt.args, p.rounds, runs, err, tt.rounds, tt.runs)
		}
	}
	for _, wrong := range []string{"-scenarios nothing", "more", "-rounds x"} {
		if _, err := parse(strings.Fields(wrong), io.Discard); err == nil {
			t.Errorf("%q was accepted", wrong)
		}
	}
}

// Each round has all contestants once, in another order. One that fails leaves.
func TestInterleave(t *testing.T) {
	var order string
	one := func(name string) contestant {
		return contestant{name: name, measure: func(context.Context) (round, error) {
			order += name
			return round{rate: float64(len(order))}, nil
		}}
	}
	failing := contestant{name: "f", measure: func(context.Context) (round, error) { return round{}, io.ErrUnexpectedEOF }}
	b := &bench{plan: plan{rounds: 4}, progress: io.Discard}
	if err := b.interleave(t.Context(), []contestant{one("a"), one("b"), failing, one("c")}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%v, want the error of the one that failed", err)
	}
	for n := range 4 {
		if of := []byte(order[3*n : 3*n+3]); !slices.Equal(slices.Sorted(slices.Values(of)), []byte("abc")) {
			t.Errorf("order %s: round %d has %s", order, n, of)
		}
	}
	if order[:6] == order[6:] {
		t.Errorf("order %s: always the same", order)
	}
	if len(b.series) != 3 {
		t.Fatalf("%d series, want 3", len(b.series))
	}
	for _, s := range b.series {
		for n, r := range s.rounds {
			if i := int(r.rate) - 1; order[i:i+1] != s.name || i/3 != n {
				t.Errorf("order %s: round %d of %s has another one's figures", order, n, s.name)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	if err := b.interleave(ctx, []contestant{one("d")}); err == nil || strings.Contains(order, "d") {
		t.Errorf("%v, order %s: measured after the end", err, order)
	}
}

func rates(name string, values ...float64) *series {
	s := &series{contestant: contestant{name: name}}
	for _, v := range values {
		s.rounds = append(s.rounds, round{rate: v, p50: time.Millisecond})
	}
	return s
}

func TestRatio(t *testing.T) {
	tests := []struct {
		name string
		a, b *series
		want float64
	}{
		// The median of ratios, not the ratio of medians, which is 1.
		{"by rounds", rates("", 10, 20, 90), rates("", 5, 20, 30), 2},
		{"an even number", rates("", 1, 2), rates("", 1, 1), 1.5},
		{"a round is missing", rates("", 4, 4), rates("", 2), 2},
		{"nothing done", rates("", 4), rates("", 0), 0},
		{"no rounds", rates(""), rates(""), 0},
	}
	for _, tt := range tests {
		if got := tt.a.ratio(tt.b, rate); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The kit is compared with its opponent and with the fastest Redis client, of the
// same number of callers.
func TestTable(t *testing.T) {
	kit, peer, slow, fast, more := rates("kit", 30), rates("peer", 10), rates("slow", 1, 9, 1), rates("fast", 15), rates("fast", 100)
	kit.against, slow.redis, fast.redis, more.redis, more.x = "peer", true, true, true, "64 callers"
	want := `| contender | | per second | p50 | p99 | client's processor time | servers' | errors |
|---|---|--:|--:|--:|--:|--:|--:|
| kit |  | 30 | 1 ms | – | – | – | 0 |
| peer |  | 10 | 1 ms | – | – | – | 0 |
| slow |  | 1 | 1 ms | – | – | – | 0 |
| fast |  | 15 | 1 ms | – | – | – | 0 |
| fast | 64 callers | 100 | 1 ms | – | – | – | 0 |

| contender | | against | per second | p99 | processor time |
|---|---|---|--:|--:|--:|
| kit |  | peer | 3.00 | 0.00 | 0.00 |
| kit |  | fast | 2.00 | 0.00 | 0.00 |
`
	if got := table([]*series{kit, peer, slow, fast, more}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestHandOvers(t *testing.T) {
	took := handOvers([][]hold{
		{{Key: 1, Asked: 0, Granted: 10, Released: 100}, {Key: 1, Asked: 205, Granted: 300, Released: 400}, {Key: 2, Asked: 1, Granted: 2, Released: 3}},
		{{Key: 1, Asked: 50, Granted: 107, Released: 200}, {Key: 1, Asked: 350, Granted: 409, Released: 500}},
		{{Key: 1, Asked: 450, Granted: 460, Released: 490}, {Key: 2, Asked: 9, Granted: 10, Released: 11}},
	})
	// The grants at 107 and 409, and the one at 460, whose key two had at once.
	if want := []time.Duration{7, 9, -40}; !reflect.DeepEqual(took, want) {
		t.Errorf("%v, want %v", took, want)
	}
}

// measured runs the program with short times, and returns what it prints. No
// operation may fail.
func measured(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), append(args, "-rounds", "1", "-measure", "20ms"), &out, t.Output()); err != nil {
		pgtest.Fatal(t, err)
	}
	return out.String()
}

// Clients that are admitted and clients that are refused all get the response
// that they should, from each limiter.
func TestRoute(t *testing.T) {
	text := measured(t, "-scenarios", "http")
	for _, want := range []string{"| bare | admitted |", "| latchkey, PostgreSQL | refused, held by another instance |", "| latchkey, PostgreSQL | admitted | Redis limiter |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "ms |") && !strings.HasSuffix(line, "| 0 |\n") {
			t.Errorf("errors: %s", line)
		}
	}
}

func TestQuick(t *testing.T) {
	text := measured(t, "-quick")
	for _, want := range []string{"| latchkey, pgx | 64 callers | connection per lock, pgx |", "| latchkey, lib/pq | 512 callers | connection per lock, lib/pq |", "## refusals"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestLongScenarios(t *testing.T) {
	text := measured(t, "-scenarios", "one processor,arrivals,held,metrics,stacks,waiters,hand-over")
	if n := strings.Count(text, "\n## "); n != 7 {
		t.Errorf("%d tables, want 7:\n%s", n, text)
	}
}
