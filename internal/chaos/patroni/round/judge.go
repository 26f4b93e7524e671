//go:build linux

package round

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
)

// A span is a time.
type span struct{ From, To history.Moment }

// starved returns the times in which a nap of 10 ms took over 50 ms, until ctx
// ends. The processes under test run on the same processors, so they may have
// been late too.
func starved(ctx context.Context) <-chan []span {
	const nap, late = 10 * time.Millisecond, history.Moment(40 * time.Millisecond)
	result := make(chan []span, 1)
	go func() {
		var all []span
		for last := history.Now(); ctx.Err() == nil; {
			time.Sleep(nap)
			now := history.Now()
			if due := last + history.Moment(nap); now-due > late {
				all = append(all, span{due, now})
			}
			last = now
		}
		result <- all
	}()
	return result
}

// evidence is what the servers did. It judges locks of a key that two processes
// held at once.
type evidence struct {
	Servers []cluster.Sighting
	Starved []span
	Faults  []Outcome // in order
	Lease   history.Moment
}

// news is how long something that a server did may take to reach a process. Time
// in which this process was starved comes on top.
const news = history.Moment(250 * time.Millisecond)

// split returns the times in which two nodes were seen to accept writes.
func (e *evidence) split() (all []span) {
	for i, a := range e.Servers {
		for _, b := range e.Servers[i+1:] {
			if s := (span{max(a.From, b.From), min(a.To, b.To)}); a.Node != b.Node && s.From <= s.To {
				all = append(all, s)
			}
		}
	}
	return all
}

// soon reports whether m was no later than what happens at once after end.
func (e *evidence) soon(end, m history.Moment) bool {
	for _, s := range e.Starved {
		end += max(0, min(s.To, m)-max(s.From, end))
	}
	return m <= end+news
}

// excuse reports whether a and b may have been valid at once, in the time of a
// fault; see check.WithExcuse. The promise of a lock holds on one writable
// primary, and there are three excuses:
//
//   - The earlier lock had ended on its server, and the news was under way to its
//     holder (the fourth assumption of docs/safety.md). It could not release it.
//   - Its holder was cut off, and its server ended. Until that holder gives up,
//     four fifths of its lease after the cut, another process may have had the key
//     for a moment.
//   - Two nodes may have accepted writes when the later lock was granted.
//
// Nothing excuses two locks of one process.
func (e *evidence) excuse(a, b check.Grant) bool {
	if a.Granted > b.Granted {
		a, b = b, a
	}
	m := b.Granted
	o := at(e.Faults, m)
	if a.Process == b.Process || o == nil || a.Granted > o.Settled || m > o.Settled && !e.soon(o.Settled, m) {
		return false
	}
	ends := func(g check.Grant) history.Moment { return max(g.Valid, g.Told) }
	heard := a.Told != 0 || a.Unlock != history.OK
	if heard && e.soon(m, ends(a)) {
		return true
	}
	cut, givenUp := kindOf(o.Row).cuts, m
	if cut {
		givenUp = max(m, o.Begin+e.Lease*4/5)
	}
	for i, s := range e.Servers {
		if cut && heard && m >= s.To-news && e.soon(s.Until(), m) && e.soon(givenUp, ends(a)) && e.soon(m, ends(b)) {
			return true
		}
		for _, t := range e.Servers[i+1:] {
			from, until := max(s.Before, t.Before), min(s.Until(), t.Until())
			two := s.Node != t.Node && from <= until && from <= m && e.soon(until, b.Requested)
			if two && e.soon(max(until, givenUp), min(ends(a), ends(b))) {
				return true
			}
		}
	}
	return false
}
