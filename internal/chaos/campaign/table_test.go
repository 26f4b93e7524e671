package campaign

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

func fleetSettings() fleet.Settings { return fleet.Settings{Lease: time.Second, Seed: 7} }

// A campaign of two faults: a partition at 100 ms and a reset at 3 s.
func results(t *testing.T, events ...[]history.Event) (*Result, error) {
	t.Helper()
	rows := []faults.Row{{Number: 4, Name: "partition"}, {Number: 8, Name: "reset"}, {Number: 30, Name: "restart"}}
	r := newResult(fleetSettings(), rows)
	injected := []history.Event{fault(4, 1, 100, 1200), fault(8, 2, 3000, 3010)}
	var all []history.Event
	for i, e := range injected {
		r.add(rows[i], faults.Outcome{Fault: *e.Fault, Lost: 1, Recovery: 90 * time.Millisecond, Outside: i}, nil)
	}
	for _, some := range append(events, injected) {
		all = append(all, some...)
	}
	return r, r.evaluate(all)
}

// A verdict says what is wrong in a history.
type verdict int

const (
	right verdict = iota
	late          // nothing but time: no violation on a busy machine, where all may take longer
	wrong         // what has nothing to do with time
)

func TestTable(t *testing.T) {
	cut := grant(1, 11, 10, 890, 900, 910, history.Lost)
	reset := grant(2, 21, 2000, 3015, 3020, 3030, history.Lost)
	tests := []struct {
		name   string
		events [][]history.Event
		judged verdict
		lines  []string
	}{
		{
			"as it should be", [][]history.Event{
				cut, grant(2, 20, 1150, 1200, 0, 1210, history.OK), reset, grant(3, 31, 3040, 3100, 0, 3110, history.OK),
			}, right, []string{
				"| 4 | partition | 1 | 1 | 800 / 800 / 800 ms | 1 of 1 | 1049 / 1049 / 1049 ms | 100 % in 1.5s | 0 | ok |",
				"| 8 | reset | 1 | 1 | 20 / 20 / 20 ms | 1 of 1 | 39 / 39 / 39 ms | 100 % in 1s | 0, 1 where no guarantee holds | ok |",
				"| 30 | restart | 0 | 0 | – | – | – | – | 0 | not run |",
			},
		},
		{
			"told after the next grant", [][]history.Event{
				grant(1, 11, 10, 890, 1190, 1195, history.Lost), grant(2, 20, 1150, 1200, 0, 1210, history.OK), reset,
			}, wrong, []string{"| 4 | partition | 1 | 1 | 1090 / 1090 / 1090 ms | 0 of 1 |", "VIOLATED |"},
		},
		{
			"an effect after the next grant", [][]history.Event{
				grant(1, 11, 10, 1180, 1190, 1195, history.Lost), grant(2, 20, 1150, 1200, 0, 1210, history.OK), reset,
			}, wrong, []string{"| 1 | VIOLATED |"},
		},
		{
			"not free again within the goal", [][]history.Event{
				cut, grant(2, 20, 1750, 1800, 0, 1810, history.OK), reset,
			}, right, []string{"0 % in 1.5s | 0 | ok |"},
		},
		{
			"not free again within the bound", [][]history.Event{
				cut, grant(2, 20, 2250, 2300, 0, 2310, history.OK),
				{{Try: &history.Try{Process: 3, Key: 1, Begin: 2200 * ms, End: 2201 * ms, Result: history.Held}}},
			}, late, []string{"0 % in 1.5s | 0 | VIOLATED |"},
		},
		{
			"the goal of notification missed", [][]history.Event{
				cut, onKey(2, grant(2, 21, 2000, 3010, 3150, 3160, history.Lost)), onKey(3, grant(2, 22, 2000, 3010, 3050, 3160, history.Lost)),
			}, right, []string{"50 / 150 / 150 ms | 2 of 2 | – | – | 0, 1 where no guarantee holds | ok; told: p99 over 100ms |"},
		},
		{
			"the bound of notification missed", [][]history.Event{
				cut, onKey(2, grant(2, 21, 2000, 3010, 3150, 3160, history.Lost)),
			}, late, []string{"150 / 150 / 150 ms | 1 of 1 |", "VIOLATED |"},
		},
		{
			"the bound of notification missed by a holder that relies on its context", [][]history.Event{
				cut, onKey(2, grant(2, 21, 2000, 3010, 3012, 3014, history.Lost)), onKey(3, grant(2, 22, 2000, 3010, 3012, 3014, history.Lost)),
				onKey(4, listens(grant(2, 23, 2000, 3010, 3150, 3160, history.Lost))),
			}, late, []string{"12 / 150 / 150 ms; 1 by their contexts, p50 150 ms | 3 of 3 |", "VIOLATED |"},
		},
		{
			"told too late of a fault whose row has no bound", [][]history.Event{
				cut, grant(2, 20, 1150, 1200, 0, 1210, history.OK), reset,
				onKey(2, grant(3, 41, 2000, 3500, 3900, 3910, history.Lost)), onKey(2, grant(4, 42, 3600, 3700, 0, 3710, history.OK)),
			}, wrong, []string{"100 % in 1.5s | 0 | ok |", "| – | – | 0, 1 where no guarantee holds | VIOLATED |"},
		},
		{
			"the news comes too late", [][]history.Event{
				cut, onKey(2, grant(2, 21, 2000, 3290, 3300, 3310, history.Lost)), onKey(2, grant(3, 31, 3100, 3500, 0, 3510, history.OK)),
			}, late, nil,
		},
		{
			"a call takes too long", [][]history.Event{cut, onKey(2, asked(5000, grant(3, 31, 6300, 6310, 0, 6320, history.OK)))}, late, nil,
		},
		{
			"a holder outlives the lease without a notice", [][]history.Event{
				cut, onKey(2, grant(2, 21, 2000, 3950, 3960, 3970, history.Lost)), onKey(2, grant(3, 31, 3100, 3980, 0, 3990, history.OK)),
			}, wrong, nil,
		},
		{
			"two locks, and no fault that would excuse it", [][]history.Event{
				grant(3, 31, 110, 150, 0, 160, history.OK), grant(4, 41, 120, 140, 0, 145, history.OK),
			}, wrong, nil,
		},
		{
			"no process held a lock", [][]history.Event{onKey(3, grant(3, 31, 2990, 2991, 0, 2992, history.OK))}, right, []string{
				"| 4 | partition | 1 | 1 | – | 0 of 0 | – | – | 0 | no holder was told |", "| 8 | reset | 1 | 1 | – | 0 of 0 | – | – | 0, 1 where no guarantee holds | no holder was told |",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := results(t, tt.events...)
			if (err == nil) != (tt.judged == right) {
				t.Errorf("judged %v, want ok %v", err, tt.judged == right)
			}
			for _, total := range []string{
				"Seed 7, ", "2 faults; ", " operations, of which another process contended 0.", "\n0 of these ran during",
				"in 2 faults; 1 overlaps where no guarantee holds; every process served again within 90ms",
			} {
				if text := r.String(); !strings.Contains(text, total) {
					t.Errorf("no %q in\n%s", total, text)
				}
			}
			table := table(r)
			for _, line := range tt.lines {
				if !strings.Contains(table, line) {
					t.Errorf("no %q in\n%s", line, table)
				}
			}
			if violated := strings.Contains(table, "VIOLATED"); violated == (tt.judged == right) {
				t.Errorf("a violation in the table: %v\n%s", violated, table)
			}
			r.busy = time.Second
			if err := r.evaluate(r.events); (err == nil) == (tt.judged == wrong) {
				t.Errorf("on a busy machine judged %v", err)
			}
		})
	}
}

// table is the table of r, with bars between its cells.
func table(r *Result) string {
	var b strings.Builder
	for _, of := range r.Rows {
		b.WriteString("| " + strings.Join(r.cells(of), " | ") + " |\n")
	}
	return b.String()
}

func listens(events []history.Event) []history.Event {
	events[1].Hold.Listens = true
	return events
}
