package check

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// Times are when faults of some kind were in force, each on its process or on
// all. Those of no kind are never.
type Times struct{ of map[int]*spans } // by process; 0: all

// TimesOf are the times of the faults of rows.
func TimesOf(events []history.Event, rows ...int) Times {
	var faults []history.Fault
	for _, e := range events {
		if e.Fault != nil && slices.Contains(rows, e.Fault.Row) {
			faults = append(faults, *e.Fault)
		}
	}
	return timesOf(faults)
}

// timesOf are the times of faults.
func timesOf(faults []history.Fault) Times {
	t := Times{map[int]*spans{}}
	for _, f := range faults {
		if t.of[f.Process] == nil {
			t.of[f.Process] = new(spans)
		}
		t.of[f.Process].add(f.Begin, max(f.Begin, f.End))
	}
	for _, s := range t.of {
		s.prepare()
	}
	return t
}

// each is the times of process: its own, and those of all.
func (t Times) each(process int) (all []*spans) {
	for _, p := range []int{process, 0} {
		if s := t.of[p]; s != nil {
			all = append(all, s)
		}
	}
	return all
}

// latest is when the last fault ended that was in force on process at some
// moment between two; 0: there was none.
func (t Times) latest(process int, from, to history.Moment) (end history.Moment) {
	for _, s := range t.each(process) {
		end = max(end, s.latest(from, to))
	}
	return end
}

func (t Times) touch(process int, from, to history.Moment) bool {
	return t.latest(process, from, to) != 0
}

// covered is for how long, between two moments, a fault was in force on process.
func (t Times) covered(process int, from, to history.Moment) (sum history.Moment) {
	for _, s := range t.each(process) {
		sum += s.covered(from, to)
	}
	return min(sum, to-from)
}
