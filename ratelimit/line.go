package ratelimit

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// A line is the requests of this process that wait for one id, of one or more
// Limiters of a namespace. It says in which order they are served, and bounds how
// many of them wait. The first alone waits in the Locker, for all slots that it
// may take. Meanwhile the first of each class with reserved places waits for
// those.
//
// The order is that of start-time fair queueing. A flow is the requests that
// share a first level; all requests of a single limit are one flow. The nth
// waiting request of a flow is for the nth round from now. So a flow with many
// requests delays the first one of another flow by at most one of them.
//
// Invariants:
//
//   - A line is in lines exactly while a request waits in it. So memory is
//     bounded by the requests that wait.
//   - A request is in at most one line, and holds no lock while it waits there.
//   - flows and places have what waits, and nothing else.
//   - Each waiter's turn is what the order of queue says: see deal.
type line struct {
	rounds map[int]uint64   // by priority: the latest round of which a request was served
	flows  map[turns]share  // of the rounds
	places map[places]int   // that are taken
	limits map[*Limiter]int // the latest result of each WithLimit; nil: there is none
	queue  []*waiter        // in order of rank
}

// A flow is the requests that share their turns in a line: those of a single
// limit, or those of stacks with this id on the first level.
type flow struct {
	stack  bool
	number int64
}

// turns and places are what a line counts by.
type (
	turns struct {
		flow     flow
		priority int
	}
	places struct {
		flow    flow
		limiter *Limiter
	}
)

// A share is what a flow has of the rounds of a line.
type share struct {
	waiting int
	last    uint64 // the last round that ends with one of them
}

// A lineID names a line: by the number of the id's first slot, and by the
// Locker, or by the Limiter if its Locker cannot be compared.
type lineID struct {
	home   any
	number int64
}

// waits counts the waiters of all lines, so that a request need not look for them
// while there is none.
var waits atomic.Int64

// lines are the lines of this process.
var lines = struct {
	mu sync.Mutex // protects m and every line in it; never held while calling out
	m  map[lineID]*line
}{m: make(map[lineID]*line)}

// A ticket is the turn of a request in a line. The request keeps it while it
// waits elsewhere, so it does not go to the end of the line when it comes back.
type ticket struct {
	line  *line
	round uint64
	kind  uint64 // among the requests of a round; one of the constants below
}

// The kinds of tickets, in the order in which a round serves them.
const (
	fresh   = iota + 1 // no other request of its flow waits
	bounced            // it had the lock of another level, and found this one full
	behind             // others of its flow wait
)

// The bits of a rank. A Priority is a signed number of priorityBits.
const (
	kindBits     = 2
	priorityBits = 21
	roundBits    = 64 - kindBits - priorityBits
	maxPriority  = 1<<(priorityBits-1) - 1
)

// rank returns the place in line as a number: lower first, never 0.
func (t *ticket) rank(priority int) uint64 {
	round := min(t.round, 1<<roundBits-1)
	return uint64(maxPriority-priority)<<(kindBits+roundBits) | round<<kindBits | t.kind
}

// enterLine puts a request for p, of this flow, in the line of p, if the flow
// has a place for it. It returns nil otherwise. The caller leaves the line with
// leave.
func (p *place) enterLine(f flow, hasBounced bool) *waiter {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	ln, mine := lines.m[p.lineID()], places{f, p.l}
	switch {
	case ln == nil:
		ln = &line{rounds: make(map[int]uint64), flows: make(map[turns]share), places: make(map[places]int)}
		lines.m[p.lineID()] = ln
	case ln.places[mine] >= p.l.maxWaiters:
		return nil
	}
	t := turns{f, p.priority()}
	if p.ticket.line != ln {
		p.ticket = ln.newTicket(t, hasBounced)
	}
	s := ln.flows[t]
	ln.flows[t] = share{s.waiting + 1, max(s.last, p.ticket.ends())}
	ln.places[mine]++
	p.l.waiters.Add(1)
	waits.Add(1)
	w := &waiter{line: ln, p: p, flow: f, rank: p.ticket.rank(p.priority()), wake: make(chan struct{}, 1)}
	i, _ := slices.BinarySearchFunc(ln.queue, w.rank+1, func(other *waiter, rank uint64) int { return cmp.Compare(other.rank, rank) })
	ln.queue = slices.Insert(ln.queue, i, w)
	if p.l.limitOf != nil {
		if ln.limits == nil {
			ln.limits = make(map[*Limiter]int)
		}
		if _, ok := ln.limits[p.l]; !ok {
			ln.limits[p.l] = p.limit
		}
	}
	ln.deal()
	return w
}

// newTicket returns the ticket of another request of t. A request that has
// bounced goes before those of other flows, but not before its own.
func (ln *line) newTicket(t turns, hasBounced bool) ticket {
	s := ln.flows[t]
	last := max(s.last, ln.rounds[t.priority])
	switch {
	case hasBounced:
		return ticket{ln, last, bounced}
	case s.waiting == 0:
		return ticket{ln, last + 1, fresh}
	}
	return ticket{ln, last + 1, behind}
}

// ends returns the round that is over once a request with t is served. Requests
// that bounce one after the other must not all be in front.
func (t *ticket) ends() uint64 {
	if t.kind == bounced {
		return t.round + 1
	}
	return t.round
}

// leave takes a request out of its line. served says whether it has got a lock
// there.
func (w *waiter) leave(served bool) {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	p, ln := w.p, w.line
	t, mine := turns{w.flow, p.priority()}, places{w.flow, p.l}
	if s := ln.flows[t]; s.waiting > 1 {
		ln.flows[t] = share{s.waiting - 1, s.last}
	} else {
		delete(ln.flows, t)
	}
	if ln.places[mine]--; ln.places[mine] == 0 {
		delete(ln.places, mine)
	}
	if served {
		ln.rounds[t.priority] = max(ln.rounds[t.priority], p.ticket.ends())
	}
	p.l.waiters.Add(-1)
	waits.Add(-1)
	if i := slices.Index(ln.queue, w); i >= 0 {
		ln.queue = slices.Delete(ln.queue, i, i+1)
	}
	if ln.deal(); len(ln.queue) == 0 {
		delete(lines.m, p.lineID())
	}
}

// lineID returns the name of the line of p.
func (p *place) lineID() lineID { return lineID{p.l.home, p.number} }
