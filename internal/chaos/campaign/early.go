package campaign

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// What a lease cannot cover: a server that ends a session on its own frees its
// locks at that moment, and the client learns of it when the news arrives. Until
// then two holders may believe. Faults of some rows do just that.
//
// The excuse is narrow. One connection ends, and with it all locks on it at
// once: so it holds for locks of the victim only, from the fault until the
// first of its holders is told, and that must be soon. A lock that its
// holder believes in beyond that is in the history as it is, and whatever it
// overlaps is a violation.

// news is how long news of a connection's end may take on a busy machine: the
// socket is watched, so it is a matter of getting the processor.
const news = 250 * time.Millisecond

// early is how long after a fault of row, at the latest, its victim may still
// believe; 0: not at all. lease is the session's.
func early(row int, lease time.Duration) time.Duration {
	switch row {
	case 7: // no news ever comes: the client finds out by itself, at send + T(1−ρ) − m
		return lease - lease/1000 - lease/5 + making
	case 8, 11, 12, 13, 20, 25: // the connection ends on the client's side, too
		return news
	}
	return 0
}

// making is how long it may take to make a fault, from its Begin: until then
// statements are answered, each of which begins the lease anew.
const making = 100 * time.Millisecond

// struckLate is the rows whose fault waits for its moment, and ends right after
// it: the connection ended close to End.
var struckLate = []int{11, 12}

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
	known  history.Moment // when a holder was told first: no lock from before is valid then
	limit  history.Moment // until when that may take
	handed history.Moment // locks that began to be held later are on another connection
}

// An excused is a lock that was held in a window.
type excused struct {
	window
	told history.Moment
}

// An explanation is which locks were held in such windows, and not believed in
// beyond them.
type explanation struct {
	windows []window
	locks   map[int64]excused
}

func explain(events []history.Event, lease time.Duration) *explanation {
	x := &explanation{locks: map[int64]excused{}}
	holds := map[int64]*history.Hold{} // of each lock the last line
	for _, e := range events {
		switch {
		case e.Hold != nil:
			holds[e.Hold.Lock] = e.Hold
		case e.Fault != nil && early(e.Fault.Row, lease) > 0:
			x.windows = append(x.windows, newWindow(*e.Fault, lease))
		}
	}
	var lost []*history.Hold
	for _, h := range holds {
		if h.Told != 0 {
			lost = append(lost, h)
		}
	}
	for i := range x.windows {
		x.windows[i].close(lost)
	}
	for _, h := range holds {
		x.place(h)
	}
	return x
}

func newWindow(f history.Fault, lease time.Duration) window {
	struck := f.Begin
	if slices.Contains(struckLate, f.Row) {
		struck = max(f.Begin, f.End)
	}
	limit := struck + history.Moment(early(f.Row, lease))
	return window{Fault: f, known: limit, limit: limit, handed: struck}
}

// close finds when the victim knew: when the first who held a lock on the
// connection was told. If nobody did by then, because locks were given back
// without an answer, it is the limit. Of a half-open one its locks may have been
// handed on within the process meanwhile, and the fault lasts until the process
// knows.
func (w *window) close(lost []*history.Hold) {
	if w.Row == 7 && w.End > w.Begin {
		w.known = min(w.known, w.End)
		w.handed = w.known
	}
	for _, h := range lost {
		if h.Process == w.Process && w.Begin <= h.Told && h.Told <= w.known {
			w.known, w.handed = h.Told, h.Told
		}
	}
}

// place notes the window in which h was held, if there is one.
func (x *explanation) place(h *history.Hold) {
	if i := slices.IndexFunc(x.windows, func(w window) bool { return w.excuses(h) }); i >= 0 {
		x.locks[h.Lock] = excused{x.windows[i], h.Told}
	}
}

// excuses reports whether h was held in w, on the connection that had ended, and
// not believed in beyond w.
func (w *window) excuses(h *history.Hold) bool {
	seen := max(h.From, h.Valid)
	if h.Process != w.Process || w.Begin > max(seen, h.Ended) {
		return false
	}
	if h.Valid < h.From && h.Told != 0 { // told at first sight: nobody believed in it
		return h.From <= w.limit
	}
	return h.From <= w.handed && seen <= w.known
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

// measure is how long such victims believed beside a later holder, by the
// overlaps of the history as it is.
func (x *explanation) measure(overlaps []check.Overlap) (all []Early) {
	byRow := map[int]*Early{}
	for _, o := range overlaps {
		w, ok := x.locks[o.First]
		if !ok {
			w, ok = x.locks[o.Second]
		}
		if !ok {
			continue // it is still there when the history is judged
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
		all = append(all, *byRow[row])
	}
	return all
}

// told takes out of report whom the news of such a fault reached in time.
func (x *explanation) told(report *check.Report) {
	report.Late = slices.DeleteFunc(report.Late, func(late check.Late) bool {
		l, ok := x.locks[late.Lock]
		return ok && l.told <= l.limit
	})
}

func (e Early) String() string {
	return fmt.Sprintf("row %d: the server ended sessions, and %d locks were valid beside a later one until the news arrived, for %v at the most",
		e.Row, e.Times, e.Longest.Round(time.Microsecond))
}
