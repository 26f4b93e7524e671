package campaign

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// What a lease cannot cover: a server that ends a session on its own frees its
// locks at that moment, and the client learns of it when the news arrives. Until
// then two holders may believe. Faults of some rows do just that, and the time
// until their victims are told is measured and bounded here, instead of taken
// for a violation. Whatever is beyond the bound stays one.

// early is how long after the next grant a victim of row may still believe; 0:
// not at all. lease is the session's.
func early(row int, lease time.Duration) time.Duration {
	const heartbeats = 5 // in a lease
	switch row {
	case 7: // no news ever comes: the client must find out by itself
		return lease
	case 8, 11, 12, 13, 20, 25: // news is on its way, or the next heartbeat brings it
		return lease / heartbeats
	}
	return 0
}

// An Early is what happened to victims of a row whose sessions the server had
// ended.
type Early struct {
	Row     int
	Times   int           // locks that were valid beside a later one
	Longest time.Duration // for how long
}

// A window is from such a fault until its victim knew of it.
type window struct {
	history.Fault
	known history.Moment
}

// An explanation is which locks were held in such windows.
type explanation struct {
	lease   time.Duration
	windows []window
	locks   map[int64]window
}

func explain(events []history.Event, lease time.Duration) *explanation {
	x := &explanation{lease: lease, locks: map[int64]window{}}
	for _, e := range events {
		if e.Fault != nil && early(e.Fault.Row, lease) > 0 {
			x.windows = append(x.windows, window{*e.Fault, e.Fault.Begin})
		}
	}
	for i := range x.windows {
		x.windows[i].close(events, lease)
	}
	for _, e := range events {
		if e.Hold != nil {
			x.place(e.Hold)
		}
	}
	return x
}

// close finds when the victim knew: one connection ends, and all who held a lock
// on it are told. Of a half-open one its locks may have been handed on to others meanwhile
// or given back without an answer, and the fault lasts until the process knows.
func (w *window) close(events []history.Event, lease time.Duration) {
	if w.Row == 7 {
		w.known = w.End
	}
	bound := w.Begin + history.Moment(early(w.Row, lease))
	for _, e := range events {
		if h := e.Hold; h != nil && h.Process == w.Process && h.From <= bound && w.Begin <= h.Told && h.Told <= bound {
			w.known = max(w.known, h.Told)
		}
	}
}

// place notes the window in which h was held, if there is one.
func (x *explanation) place(h *history.Hold) {
	i := slices.IndexFunc(x.windows, func(w window) bool {
		return h.Process == w.Process && h.From <= w.known && w.Begin <= max(h.From, h.Valid, h.Ended)
	})
	if i >= 0 {
		x.locks[h.Lock] = x.windows[i]
	}
}

// believed is the history without what victims believed in those windows: a
// lock from before is in doubt from then on, and one that was handed on within
// the process is not there at all.
func (x *explanation) believed(events []history.Event) []history.Event {
	var all []history.Event
	for _, e := range events {
		switch {
		case e.Hold != nil:
			w, ok := x.locks[e.Hold.Lock]
			if ok && e.Hold.From > w.Begin {
				continue
			}
			if ok {
				e.Hold = doubted(*e.Hold, w.Begin)
			}
		case e.Try != nil:
			if w, ok := x.locks[e.Try.Lock]; ok && e.Try.End > w.Begin {
				continue
			}
		}
		all = append(all, e)
	}
	return all
}

// doubted is h, if nobody knows what became of it after from.
func doubted(h history.Hold, from history.Moment) *history.Hold {
	h.Valid = max(h.From, min(h.Valid, from))
	if h.Unlock == history.OK {
		h.Unlock = history.Unavailable
	}
	return &h
}

// errEarly: a holder believed for longer than news of its loss may take.
var errEarly = errors.New("campaign: a victim of a fault believed too long")

// measure is how long such victims believed beside a later holder, by the
// overlaps of the history as it is.
func (x *explanation) measure(overlaps []check.Overlap) (all []Early, err error) {
	byRow := map[int]*Early{}
	for _, o := range overlaps {
		w, ok := x.locks[o.First]
		if !ok {
			w, ok = x.locks[o.Second]
		}
		if !ok {
			continue // somebody else complains of it
		}
		e := byRow[w.Row]
		if e == nil {
			e = &Early{Row: w.Row}
			byRow[w.Row] = e
		}
		e.Times++
		e.Longest = max(e.Longest, time.Duration(o.To-o.From))
	}
	for _, row := range slices.Sorted(maps.Keys(byRow)) {
		e := *byRow[row]
		all = append(all, e)
		if bound := early(row, x.lease); e.Longest > bound {
			err = errors.Join(err, fmt.Errorf("%w: row %d: %v, bound %v", errEarly, row, e.Longest, bound))
		}
	}
	return all, err
}

// told takes out of report whom the news of such a fault reached in time.
func (x *explanation) told(report *check.Report) {
	report.Late = slices.DeleteFunc(report.Late, func(late check.Late) bool {
		w, ok := x.locks[late.Lock]
		return ok && late.By <= early(w.Row, x.lease)
	})
}

func (e Early) String() string {
	return fmt.Sprintf("row %d: the server ended sessions, and %d locks were valid beside a later one until the news arrived, for %v at the most",
		e.Row, e.Times, e.Longest.Round(time.Microsecond))
}
