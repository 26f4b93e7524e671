//go:build linux

package round

import (
	"context"
	"fmt"
	"slices"
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

// An isolation is a time in which processes could not reach a node.
type isolation struct {
	Node      string
	Processes []int
	span
}

// Evidence is what the servers did. It judges locks of a key that two processes
// held at once. Two things excuse them, since the promise of a lock holds on one
// writable primary:
//
//   - Two nodes accepted writes, and each of them granted one of the locks.
//   - The session of the earlier lock was ending. The lock was free a moment before
//     the holder heard of it (the fourth assumption of docs/safety.md).
//
// Both holders must know of the end of their sessions all the same, and soon. One
// that is cut off from its server hears nothing, and its lease ends the lock.
type evidence struct {
	Servers  []cluster.Sighting            // times in which a node accepted writes
	Sessions map[string][]cluster.Sighting // by name
	Starved  []span
	Isolated []isolation
	Lease    history.Moment
}

// news is how long something that a server did may take to reach a process. Time
// in which this process was starved comes on top.
const news = history.Moment(250 * time.Millisecond)

// straggle is how much longer than the observer's session others may live on a
// server that ends them.
const straggle = history.Moment(50 * time.Millisecond)

// clientName is the application_name of process i, and sessionName the one that
// its Session makes of it.
func clientName(i int) string  { return fmt.Sprintf("process-%d", i) }
func sessionName(i int) string { return clientName(i) + " latchkey" }

func newEvidence(seen []cluster.Sighting, starved []span, isolated []isolation, lease time.Duration) *evidence {
	e := &evidence{Sessions: map[string][]cluster.Sighting{}, Starved: starved, Isolated: isolated, Lease: history.Moment(lease)}
	for _, s := range seen {
		if s.Client == "" {
			e.Servers = append(e.Servers, s)
		} else {
			e.Sessions[s.Client] = append(e.Sessions[s.Client], s)
		}
	}
	return e
}

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

// awake is the time between two moments, less that in which processes were
// starved.
func (e *evidence) awake(from, to history.Moment) history.Moment {
	sum := to - from
	for _, s := range e.Starved {
		sum -= max(0, min(s.To, to)-max(s.From, from))
	}
	return sum
}

// soon reports whether m was no later than what happens at once after end.
func (e *evidence) soon(end, m history.Moment) bool { return m <= end || e.awake(end, m) <= news }

// mayGrant reports whether s, a server or a session, was there when g may have
// been granted.
func (e *evidence) mayGrant(s cluster.Sighting, g check.Grant) bool {
	inTime := g.Requested <= s.Until() || e.awake(s.Until(), g.Requested) <= straggle
	return g.Granted >= s.Before && inTime && e.soon(s.Until(), g.Granted)
}

// accepts reports whether node may have accepted writes after m, and when g was
// granted.
func (e *evidence) accepts(node string, m history.Moment, g check.Grant) bool {
	return slices.ContainsFunc(e.Servers, func(s cluster.Sighting) bool { return s.Node == node && m <= s.Until() && e.mayGrant(s, g) })
}

// cutOff reports whether process could not reach node between two moments.
func (e *evidence) cutOff(process int, node string, from, to history.Moment) bool {
	return slices.ContainsFunc(e.Isolated, func(i isolation) bool {
		return i.Node == node && slices.Contains(i.Processes, process) && i.From <= from && to <= i.To
	})
}

// grantors returns the sessions that may have granted g. The session of a holder
// that has ended at once may have been too short to be seen: then it was on a
// server that ended.
func (e *evidence) grantors(g check.Grant) (all []cluster.Sighting) {
	seen := false
	for _, s := range e.Sessions[sessionName(g.Process)] {
		if e.mayGrant(s, g) {
			seen = true
			if e.accepts(s.Node, s.Before, g) && !e.cutOff(g.Process, s.Node, g.Requested, g.Granted) {
				all = append(all, s)
			}
		}
	}
	for _, s := range e.Servers {
		if !seen && e.mayGrant(s, g) && e.ends(s, g.Granted) && e.soon(g.Granted, lastValid(g)) {
			s.Gone = g.Granted
			all = append(all, s)
		}
	}
	return all
}

// ends reports whether s, a server or a session, ended around m.
func (e *evidence) ends(s cluster.Sighting, m history.Moment) bool {
	return m >= s.To-news && e.soon(s.Gone, m)
}

// excuse reports whether a and b may have been valid at once; see
// check.WithExcuse.
func (e *evidence) excuse(a, b check.Grant) bool {
	if a.Granted > b.Granted {
		a, b = b, a
	}
	// If b was requested before a was granted, the server may have granted b first.
	return a.Process != b.Process && (e.excused(a, b) || b.Requested <= a.Granted && e.excused(b, a))
}

// excused is excuse for two locks in the order in which they were granted.
func (e *evidence) excused(first, second check.Grant) bool {
	m := second.Granted
	for _, s := range e.grantors(first) {
		ending := e.ends(s, m) && e.knew(first, s, m)
		cut := e.cutOff(first.Process, s.Node, m, m) // then only its own server frees the lock before the holder gives up
		for _, t := range e.grantors(second) {
			freed := ending && (!cut || t.Node == s.Node && t.Before <= s.Until())
			two := t.Node != s.Node && e.accepts(s.Node, t.Before, second) && e.knew(first, s, 0)
			if (freed || two) && e.knew(second, t, 0) {
				return true
			}
		}
	}
	return false
}

// lastValid is when the holder of g was last seen to rely on it.
func lastValid(g check.Grant) history.Moment { return max(g.Valid, g.Told) }

// knew reports whether the holder of a lock went on for no longer than it may. Its
// lock ended with s, its session, or at m if that was later. A holder that was cut
// off meanwhile gives up four fifths of the lease after the cut. If the cut is over
// by then, it may know of the end of its lock no earlier.
func (e *evidence) knew(lock check.Grant, s cluster.Sighting, m history.Moment) bool {
	limit, givenUp := max(m, s.Until()), cluster.Never
	for _, i := range e.Isolated {
		if i.Node != s.Node || !slices.Contains(i.Processes, lock.Process) || lock.Granted > i.To || i.From > s.Until()+straggle {
			continue
		}
		over := i.From + e.Lease*4/5
		ends := func(server cluster.Sighting) bool {
			return server.Node == s.Node && m >= server.To-news && e.soon(server.Gone, m)
		}
		if m >= i.From && m <= i.To && !slices.ContainsFunc(e.Servers, ends) {
			return false // the session alone does not end before the lease
		}
		if over <= i.To {
			givenUp = min(givenUp, over)
		} else if max(m, s.To) <= i.To {
			limit = max(limit, over)
		}
	}
	if givenUp != cluster.Never {
		limit = givenUp
	}
	return e.soon(limit, lastValid(lock))
}
