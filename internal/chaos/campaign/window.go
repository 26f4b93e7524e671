package campaign

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A lease cannot cover a server that ends a session on its own. The server frees
// the locks at that moment, and the client is notified a little later. Until then
// two locks of a key may be valid. Faults of some rows do just that.
//
// The excuse is narrow. One connection ends, and all locks on it end with it:
//
//   - The excuse holds for locks of the victim only, from the fault until the first
//     of its holders is told, which must be soon.
//   - It holds only against locks that other processes were granted after the fault.
//   - Two locks of one process, or a lock from before the fault, are a violation.

const (
	// noticeDelay is how long the notice of a connection's end may take on a busy
	// machine. The socket is watched, so the notice only waits for a processor.
	noticeDelay = 250 * time.Millisecond

	// endsWithin is how long the server may take to end a session by order.
	endsWithin = time.Second + slack

	// making is how long it may take to make a fault, from its Begin. Until then
	// statements are answered, and each begins the lease anew.
	making = 100 * time.Millisecond

	halfOpenRow = 7 // no notice ever comes
)

// orderedRows are those in which the server is given an order to end the session of
// one process. It may take endsWithin to carry it out.
var orderedRows = []int{13, 25}

// A window lasts from a fault that ended a connection on the server's side until
// its victim knew.
type window struct {
	process int
	begin   history.Moment
	known   history.Moment // when a holder was told first: no lock from before is valid then
	limit   history.Moment // until when that may take
	handed  history.Moment // locks that began to be held later are on another connection
}

// holds reports whether g was held in w, on the connection that had ended, and
// was not taken for valid after w.
func (w *window) holds(g check.Grant) bool {
	seen := max(g.From, g.Valid)
	if g.Process != w.process || w.begin > max(seen, g.Ended) {
		return false
	}
	if g.Valid < g.From && g.Told != 0 { // told at first sight: its holder never saw it valid
		return g.From <= w.limit
	}
	return g.From <= w.handed && seen <= w.known && g.Told <= w.limit
}

// excuses returns what says which locks may overlap; see check.Facts.
func (r *Result) excuses(events []history.Event) func(a, b check.Grant) bool {
	locks := locksOf(events)
	var windows []window
	for _, e := range events {
		if e.Fault == nil || !r.promise(e.Fault.Row).News {
			continue
		}
		victims := map[int]bool{e.Fault.Process: true}
		if e.Fault.Process == 0 { // a server that stops ends the sessions of all, one after the other
			for _, g := range locks {
				victims[g.Process] = true
			}
		}
		for process := range victims {
			windows = append(windows, r.window(*e.Fault, process, locks))
		}
	}
	one := func(a, b check.Grant) bool {
		return slices.ContainsFunc(windows, func(w window) bool {
			return w.holds(a) && b.Process != w.process && b.Granted >= w.begin
		})
	}
	return func(a, b check.Grant) bool { return one(a, b) || one(b, a) }
}

// window returns the window of one victim of f.
func (r *Result) window(f history.Fault, process int, locks map[int64]*check.Grant) window {
	lease := r.Settings.Lease
	unnoticed := lease - lease/1000 - lease/5 + making // at send + T(1−ρ) − m a client finds out by the clock
	notice := history.Moment(min(noticeDelay+r.Busy, unnoticed))
	w := window{process: process, begin: f.Begin, limit: f.Begin + notice, handed: f.Begin}
	switch {
	case f.Process == 0:
		w.limit += max(0, f.End-f.Begin)
	case f.Row == halfOpenRow:
		w.limit = f.Begin + history.Moment(unnoticed)
	case slices.Contains(orderedRows, f.Row):
		w.limit = max(w.limit, r.shown(f, locks)+notice)
	}
	w.known = w.limit
	if f.Row == halfOpenRow && f.End > f.Begin { // locks are handed on within the process meanwhile
		w.known = min(w.known, f.End)
		w.handed = w.known
	}
	for _, g := range locks {
		if g.Process == process && w.begin <= g.Told && g.Told <= w.known {
			w.known, w.handed = g.Told, g.Told
		}
	}
	return w
}

// shown returns when the first key that f's victim held was granted to another
// process, whose call had begun before. That shows when a slow server ended the
// session. It is 0 if nothing shows it.
func (r *Result) shown(f history.Fault, locks map[int64]*check.Grant) (at history.Moment) {
	held := map[int64]bool{}
	for _, g := range locks {
		if g.Process == f.Process && g.From <= f.Begin && g.Told >= f.Begin {
			held[g.Key] = true
		}
	}
	first := f.Begin + history.Moment(endsWithin+r.Busy)
	for _, g := range locks {
		if held[g.Key] && g.Process != f.Process && f.Begin <= g.Granted && g.Granted < first {
			first, at = g.Granted, 0
			if g.Requested <= f.Begin {
				at = first
			}
		}
	}
	return at
}

// locksOf returns all locks by number. The last Hold of each counts.
func locksOf(events []history.Event) map[int64]*check.Grant {
	locks := map[int64]*check.Grant{}
	for _, e := range events {
		if e.Hold != nil {
			locks[e.Hold.Lock] = &check.Grant{Hold: *e.Hold, Requested: e.Hold.From, Granted: e.Hold.From}
		}
	}
	for _, e := range events {
		if e.Try != nil && locks[e.Try.Lock] != nil {
			locks[e.Try.Lock].Granted = e.Try.End
			if e.Try.All == 0 { // a call for several keys may have waited for another one
				locks[e.Try.Lock].Requested = e.Try.Begin
			}
		}
	}
	return locks
}

// promise returns what holds in a row of r's store.
func (r *Result) promise(row int) faults.Promise {
	for _, of := range faults.Rows(r.Settings.Store) {
		if of.Number == row {
			return of.On[r.Settings.Store]
		}
	}
	return faults.Promise{}
}
