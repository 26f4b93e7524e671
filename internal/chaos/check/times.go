package check

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// Times are when faults of some kind were in force, each on its process or on
// all. Those of no kind are never.
type Times struct{ of map[int]*spans } // by process, each with those on all; 0: those on all

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
	t := Times{map[int]*spans{0: {}}}
	for _, f := range faults {
		t.of[f.Process] = &spans{}
	}
	for _, f := range faults {
		for process, s := range t.of {
			if f.Process == process || f.Process == 0 {
				s.add(f.Begin, max(f.Begin, f.End))
			}
		}
	}
	for _, s := range t.of {
		s.prepare()
	}
	return t
}

// on is the times of process: its own, and those on all.
func (t Times) on(process int) *spans {
	if s := t.of[process]; s != nil {
		return s
	}
	if s := t.of[0]; s != nil {
		return s
	}
	return &spans{}
}

// latest is when the last fault ended that was in force on process at some
// moment between two; 0: there was none.
func (t Times) latest(process int, from, to history.Moment) history.Moment {
	return t.on(process).latest(from, to)
}

func (t Times) touch(process int, from, to history.Moment) bool {
	return t.on(process).touch(from, to)
}

// covered is for how long, between two moments, a fault was in force on process.
func (t Times) covered(process int, from, to history.Moment) history.Moment {
	return t.on(process).covered(from, to)
}
