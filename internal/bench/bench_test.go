package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	os.Exit(pgtest.Main(m))
}

func TestParse(t *testing.T) {
	tests := []struct {
		args    []string
		rounds  int
		measure time.Duration
		runs    []string
	}{
		{nil, 5, 400 * time.Millisecond, []string{"pairs", "burst", "stacks", "requests"}},
		{[]string{"-quick"}, 2, 200 * time.Millisecond, []string{"pairs", "burst"}},
		{[]string{"-quick", "-rounds", "3", "-measure", "1s"}, 3, time.Second, []string{"pairs", "burst"}},
		{[]string{"-scenarios", "stacks,pairs"}, 5, 400 * time.Millisecond, []string{"stacks", "pairs"}},
	}
	for _, tt := range tests {
		p, err := parse(tt.args, io.Discard)
		var runs []string
		for _, s := range p.chosen {
			runs = append(runs, s.name)
		}
		if err != nil || p.rounds != tt.rounds || p.measure != tt.measure || !slices.Equal(runs, tt.runs) {
			t.Errorf("%q: %d rounds of %v of %q, %v; want %d of %v of %q", tt.args, p.rounds, p.measure, runs, err, tt.rounds, tt.measure, tt.runs)
		}
	}
	for _, wrong := range []string{"-scenarios nothing", "more", "-rounds x"} {
		if _, err := parse(strings.Fields(wrong), io.Discard); err == nil {
			t.Errorf("%q was accepted", wrong)
		}
	}
}

// An operation of 10 ms by 4 callers, in virtual time: what is counted is what
// ended within the time measured.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := load{callers: 4, warmUp: 95 * time.Millisecond, measure: 100 * time.Millisecond, op: func(ctx context.Context, caller int) error {
			if ctx.Done() != nil {
				t.Error("the context can end")
			}
			time.Sleep(10 * time.Millisecond) // the length of an operation
			if caller == 3 {
				return io.ErrUnexpectedEOF
			}
			return nil
		}}.run(t.Context())
		if err != nil || r.rate != 300 || r.errors != 10 || r.p50 != 10*time.Millisecond || r.p99 != 10*time.Millisecond {
			t.Errorf("%+v, %v; want 300 a second of 10ms, 10 errors", r, err)
		}

		// run ends early with its context, and lets operations end.
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, _ = load{callers: 1, warmUp: time.Hour, measure: time.Hour, op: func(context.Context, int) error {
			time.Sleep(10 * time.Millisecond) // the length of an operation
			return nil
		}}.run(ctx)
		if got := time.Since(start); got != 30*time.Millisecond {
			t.Errorf("ended after %v, want 30ms", got)
		}
	})
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
	want := `| contender | | per second | p50 | p99 | processor time | errors |
|---|---|--:|--:|--:|--:|--:|
| kit |  | 30 | 1 ms | 0 µs | 0 µs | 0 |
| peer |  | 10 | 1 ms | 0 µs | 0 µs | 0 |
| slow |  | 1 | 1 ms | 0 µs | 0 µs | 0 |
| fast |  | 15 | 1 ms | 0 µs | 0 µs | 0 |
| fast | 64 callers | 100 | 1 ms | 0 µs | 0 µs | 0 |

| contender | | against | per second | p99 | processor time |
|---|---|---|--:|--:|--:|
| kit |  | peer | 3.00 | 0.00 | 0.00 |
| kit |  | fast | 2.00 | 0.00 | 0.00 |
`
	if got := table([]*series{kit, peer, slow, fast, more}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Every contender excludes: in one process and between two, as long as the lock
// is held and no longer.
func TestExclusion(t *testing.T) {
	s, err := startServers(t.Context())
	if err != nil {
		pgtest.Fatal(t, err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	if s.postgresVersion == "" || s.redisVersion == "" {
		t.Errorf("versions %q and %q", s.postgresVersion, s.redisVersion)
	}
	for _, c := range contenders() {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			open := func() *locks {
				l, err := c.open(ctx, s, 8)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := l.close(); err != nil {
						t.Error(err)
					}
				})
				return l
			}
			here, there, name := open(), open(), "a "+c.name
			release, err := here.acquire(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			other, err := there.acquire(ctx, "b "+c.name)
			if err != nil {
				t.Fatalf("another name: %v", err)
			}
			for which, l := range map[string]*locks{"here": here, "there": there} {
				if _, err := l.acquire(ctx, name); !errors.Is(err, errBusy) {
					t.Errorf("%s, while it is held: %v, want errBusy", which, err)
				}
			}
			if err := release(ctx); err != nil {
				t.Fatal(err)
			}
			again, err := there.acquire(ctx, name)
			if err != nil {
				t.Fatalf("after its release: %v", err)
			}
			if err := errors.Join(again(ctx), other(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Each scenario runs without an error, and compares what it should.
func TestLongScenarios(t *testing.T) {
	for _, args := range [][]string{{"-quick"}, {"-scenarios", "stacks"}} {
		var out bytes.Buffer
		if err := run(t.Context(), append(args, "-rounds", "1", "-measure", "20ms"), &out, t.Output()); err != nil {
			pgtest.Fatal(t, err)
		}
		want := []string{"| latchkey, pgx | 64 callers | connection per lock, pgx |", "| latchkey, lib/pq | 512 callers | connection per lock, lib/pq |", "## burst"}
		if args[0] != "-quick" {
			want = []string{"## stacks", "| all three |  | one limit per user, OneAtATime |"}
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("no %s in\n%s", text, out.String())
			}
		}
		for line := range strings.Lines(out.String()) {
			if strings.Count(line, "|") == 7 && strings.Contains(line, "ms |") && !strings.HasSuffix(line, "| 0 |\n") {
				t.Errorf("errors: %s", line)
			}
		}
	}
}
