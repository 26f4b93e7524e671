package lockui

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

func heldBy(pid int, key int64) lockwatch.Holder {
	return lockwatch.Holder{Key: sqllock.ID(key), Process: lockwatch.Process{PID: pid}}
}

func waitsFor(pid int, key int64, by ...int) lockwatch.Waiter {
	return lockwatch.Waiter{Key: sqllock.ID(key), Process: lockwatch.Process{PID: pid}, BlockedBy: by}
}

// A drawing has each wait as an arrow to the right, and marks the arrows of cycles,
// one of which goes back.
func TestDrawGraph(t *testing.T) {
	t.Parallel()
	now := time.Now()
	registered := func(pid int, key int64) lockwatch.Holder {
		h := heldBy(pid, key)
		h.Registration = &lockwatch.Registration{Session: 9, Acquired: now.Add(-time.Minute)}
		return h
	}
	polls := func(key int64, held *sqllock.Key) lockwatch.Waiter {
		return lockwatch.Waiter{Key: sqllock.ID(key), Poll: &lockwatch.Poll{Session: 9, Callers: 1, Held: held, Heartbeat: now}}
	}
	six := sqllock.ID(6)
	tests := []struct {
		name                string
		s                   lockwatch.Snapshot
		nodes, edges, marks int
		names               []string
	}{
		{"nothing", lockwatch.Snapshot{Holders: []lockwatch.Holder{heldBy(1, 5)}}, 0, 0, 0, nil},
		{"one waits", lockwatch.Snapshot{Holders: []lockwatch.Holder{heldBy(1, 5)}, Waiters: []lockwatch.Waiter{waitsFor(2, 5, 1)}}, 2, 1, 0, []string{"process 1", "process 2, , waits for 5"}},
		{"a queue", lockwatch.Snapshot{Holders: []lockwatch.Holder{heldBy(1, 5)}, Waiters: []lockwatch.Waiter{waitsFor(2, 5, 1), waitsFor(3, 5, 1, 2)}}, 3, 2, 0, nil},
		{"two in a cycle", lockwatch.Snapshot{Holders: []lockwatch.Holder{heldBy(1, 5), heldBy(2, 6)}, Waiters: []lockwatch.Waiter{waitsFor(2, 5, 1), waitsFor(1, 6, 2)}}, 2, 2, 2, nil},
		{"callers of a session", lockwatch.Snapshot{Holders: []lockwatch.Holder{registered(1, 5)}, Waiters: []lockwatch.Waiter{polls(5, nil)}}, 2, 1, 0, []string{"holder of 5, process 1", "callers of 9"}},
		{"a caller that holds another key", lockwatch.Snapshot{Holders: []lockwatch.Holder{registered(1, 5), registered(1, 6)}, Waiters: []lockwatch.Waiter{polls(5, &six)}}, 2, 1, 0, []string{"holder of 5", "holder of 6, process 1, waits for 5"}},
		{"a row", lockwatch.Snapshot{Blocked: []lockwatch.Blocked{{Process: lockwatch.Process{PID: 1}, BlockedBy: []int{2}}}}, 2, 1, 0, nil},
		{"a prepared transaction", lockwatch.Snapshot{Holders: []lockwatch.Holder{heldBy(0, 5)}, Waiters: []lockwatch.Waiter{waitsFor(2, 5, 0)}}, 2, 1, 0, []string{"prepared transaction"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := draw(lockwatch.NewView(&tt.s))
			marks, back := 0, 0
			for _, e := range g.Edges {
				if e.Cycle {
					marks++
				}
			}
			for _, n := range g.Nodes {
				for _, to := range n.Arrows {
					if n.X >= g.Nodes[to].X {
						back++
					}
				}
			}
			if len(g.Nodes) != tt.nodes || len(g.Edges) != tt.edges || marks != tt.marks || back > 0 != (tt.marks > 0) {
				t.Errorf("%d nodes, %d edges, %d marked, %d back: %+v", len(g.Nodes), len(g.Edges), marks, back, g)
			}
			places := map[[2]int]bool{}
			var names []string
			for _, n := range g.Nodes {
				if n.X < 0 || n.Y < 0 || n.X+nodeWidth > g.Width || n.Y+nodeHeight > g.Height || places[[2]int{n.X, n.Y}] {
					t.Errorf("node %+v is outside of %d × %d, or on another", n, g.Width, g.Height)
				}
				places[[2]int{n.X, n.Y}] = true
				names = append(names, n.Title()+", "+n.Where()+", "+n.Wants)
			}
			for _, want := range tt.names {
				if !strings.Contains(strings.Join(names, "\n"), want) {
					t.Errorf("no %q in %q", want, names)
				}
			}
		})
	}
}

// A drawing has a bound. Cycles have the first right to its room. What has no
// room is counted once.
func TestDrawGraphBound(t *testing.T) {
	t.Parallel()
	queue := lockwatch.Snapshot{Holders: []lockwatch.Holder{heldBy(1, 5), heldBy(9001, 91), heldBy(9002, 92)}}
	for i := range 1000 {
		queue.Waiters = append(queue.Waiters, waitsFor(100+i, 5, 1))
	}
	queue.Waiters = append(queue.Waiters, waitsFor(9001, 92, 9002), waitsFor(9002, 91, 9001))
	const n = 200
	var cycle lockwatch.Snapshot
	for i := range n {
		next := (i + 1) % n
		cycle.Holders = append(cycle.Holders, heldBy(i+1, int64(i)))
		cycle.Waiters = append(cycle.Waiters, waitsFor(i+1, int64(next), next+1))
	}
	for _, tt := range []struct {
		name         string
		s            *lockwatch.Snapshot
		marked, more int
	}{
		{"a queue and a cycle of two", &queue, 2, 1003 - maxNodes},
		{"a long cycle", &cycle, maxNodes, n - maxNodes},
	} {
		g := draw(lockwatch.NewView(tt.s))
		marked := 0
		for _, n := range g.Nodes {
			if n.Cycle > 0 {
				marked++
			}
		}
		if len(g.Nodes) != maxNodes || marked != tt.marked || g.More != tt.more {
			t.Errorf("%s: %d nodes, %d in a cycle, %d more", tt.name, len(g.Nodes), marked, g.More)
		}
	}
}

func TestDrawSparkline(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values       []float64
		now, points  string
		textContains string
	}{
		{nil, "–", "", "not known yet"},
		{[]float64{4}, "4", "", "between 4 and 4"},
		{[]float64{0, 2, 1}, "1", "177.6,30.0 178.8,2.0 180.0,16.0", "In the last 4.0 s between 0 and 2."},
		{[]float64{0, 0}, "0", "178.8,30.0 180.0,30.0", "between 0 and 0"},
	} {
		got := drawSparkline("Held", tt.values, countText)
		if got.Now != tt.now || got.Points != tt.points || !strings.Contains(got.Text, tt.textContains) {
			t.Errorf("%v: %+v", tt.values, got)
		}
	}
}

// A history keeps the last samples, the oldest first.
func TestHistory(t *testing.T) {
	t.Parallel()
	held := 0
	past := newHistory(func() sqllock.Stats { held++; return sqllock.Stats{Held: held} })
	for range 2 * maxSamples {
		past.take()
	}
	if n := len(past.samples); n != maxSamples || past.samples[0][0] != maxSamples+2 || past.samples[n-1][0] != 2*maxSamples+1 {
		t.Errorf("%d samples: %v", n, past.samples)
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		spanText(0): "0.0 s", spanText(9.96): "10.0 s", spanText(59.9): "59 s", spanText(61): "1 min 1 s", spanText(3700): "1 h 1 min", spanText(90_000): "1 d 1 h",
		durationText(0): "–", durationText(0.0004): "0.40 ms", durationText(0.25): "250 ms", durationText(12): "12.0 s",
		countText(3): "3", countText(2.26): "2.3", cut("äöü", 3): "äöü", cut("äöüx", 3): "äö…",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
