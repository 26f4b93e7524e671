package campaign

import (
	"errors"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A freeze is what one freeze of a process did to one key.
type freeze struct {
	fault   history.Fault
	lost    history.Hold   // of the frozen process, which was told after it woke up
	next    history.Hold   // the first one of another process meanwhile
	holds   []history.Hold // of the key, in the whole history
	refused []history.Try  // of the key, meanwhile
}

// errNoFreeze: no process lost a lock that another process got meanwhile.
var errNoFreeze = errors.New("campaign: no freeze for a picture: no other process got the key of a frozen one; run row 2 more often")

// frozenRow is the row in which a process is frozen for longer than its lease.
const frozenRow = 2

// clearestFreeze returns the freeze in which both holders are seen best.
func clearestFreeze(events []history.Event) (best freeze, err error) {
	holds := map[int64]history.Hold{} // of each lock the last line
	for _, e := range events {
		if e.Hold != nil {
			holds[e.Hold.Lock] = *e.Hold
		}
	}
	keys := map[int64][]history.Hold{}
	for _, h := range holds {
		keys[h.Key] = append(keys[h.Key], h)
	}
	for _, e := range events {
		if e.Fault == nil || e.Fault.Row != frozenRow {
			continue
		}
		for _, holds := range keys {
			if f := (freeze{fault: *e.Fault, holds: holds}); f.find() && f.shown() > best.shown() {
				best = f
			}
		}
	}
	if best.lost.Lock == 0 {
		return best, errNoFreeze
	}
	best.refused = refusals(events, best)
	return best, nil
}

// find sets lost and next. It reports whether there are such locks.
func (f *freeze) find() bool {
	for _, h := range f.holds {
		frozen := h.Process == f.fault.Process
		switch {
		case frozen && h.From <= f.fault.Begin && h.Valid >= h.From && h.Told >= f.fault.End && h.From > f.lost.From:
			f.lost = h
		case !frozen && f.fault.Begin < h.From && h.From < h.Valid && (f.next.Lock == 0 || h.From < f.next.From):
			f.next = h
		}
	}
	return f.lost.Lock != 0 && f.next.Lock != 0 && f.next.From < f.fault.End
}

// shown is how long the shorter of the two locks is held before the freeze and
// after the grant.
func (f *freeze) shown() history.Moment {
	return min(f.next.Valid-f.next.From, f.fault.Begin-f.lost.From)
}

// refusals returns the refused calls of other processes for f's key, from the
// beginning of the freeze to the next grant.
func refusals(events []history.Event, f freeze) (all []history.Try) {
	for _, e := range events {
		if t := e.Try; t != nil && t.Key == f.lost.Key && t.Process != f.fault.Process && t.Result == history.Held &&
			t.Begin > f.fault.Begin && t.End < f.next.From {
			all = append(all, *t)
		}
	}
	return all
}

// processes returns the processes in the picture from one moment to another, the
// frozen one first.
func (f *freeze) processes(from, to history.Moment) []int {
	var others []int
	for _, h := range f.holds {
		if h.Process != f.fault.Process && h.Valid > from && h.From < to {
			others = append(others, h.Process)
		}
	}
	for _, t := range f.refused {
		others = append(others, t.Process)
	}
	slices.Sort(others)
	return append([]int{f.fault.Process}, slices.Compact(others)...)
}
