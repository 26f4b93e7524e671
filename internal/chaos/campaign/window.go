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
// The excuse is narrow:
//
//   - It holds for locks of the victim only, from the fault until the notice must
//     have come.
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
// its victim must know.
type window struct {
	process int
	begin   history.Moment
	limit   history.Moment // until when its holders must be told
}

// holds reports whether g was held in w, and was not taken for valid after w.
func (w *window) holds(g check.Grant) bool {
	seen := max(g.From, g.Valid)
	return g.Process == w.process && w.begin <= max(seen, g.Ended) && seen <= w.limit && g.Told <= w.limit
}

// excuses returns what says which locks may overlap; see check.Facts.
func (r *Result) excuses(events []history.Event) func(a, b check.Grant) bool {
	processes := map[int]bool{}
	for _, e := range events {
		if e.Hold != nil {
			processes[e.Hold.Process] = true
		}
	}
	var windows []window
	for _, e := range events {
		if e.Fault == nil || !r.promise(e.Fault.Row).News {
			continue
		}
		if e.Fault.Process != 0 {
			windows = append(windows, r.window(*e.Fault, e.Fault.Process))
			continue
		}
		for process := range processes { // a server that stops ends the sessions of all, one after the other
			windows = append(windows, r.window(*e.Fault, process))
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
func (r *Result) window(f history.Fault, process int) window {
	lease := r.Settings.Lease
	unnoticed := lease - lease/1000 - lease/5 + making // at send + T(1−ρ) − m a client finds out by the clock
	notice := history.Moment(min(noticeDelay+r.Busy, unnoticed))
	w := window{process: process, begin: f.Begin, limit: f.Begin + notice}
	switch {
	case f.Process == 0:
		w.limit += max(0, f.End-f.Begin)
	case f.Row == halfOpenRow: // locks are handed on within the process meanwhile
		w.limit = f.Begin + history.Moment(unnoticed)
	case slices.Contains(orderedRows, f.Row):
		w.limit += history.Moment(endsWithin + r.Busy)
	}
	return w
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
