package ratelimit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// lines are the lines of a Limiter, by the number of the id's first slot.
//
// Invariant: a line is in m exactly while a request waits in it. So memory is
// bounded by the requests that wait.
type lines struct {
	waiting atomic.Int64 // requests in all lines, so that others need not look for them while there is none

	mu sync.Mutex // protects m, each line in it, and their waiters; never held while calling out
	m  map[int64]*line
}

// A line is the requests of this process that wait for one id of a Limiter. It
// says in which order they are served, and bounds how many of them wait. The
// first alone waits in the Locker, for all slots that it may take. Meanwhile the
// first of each class with reserved places waits for those.
//
// A higher priority goes first. Within a priority the order is that of
// start-time fair queueing. A flow is the requests that share a first level. All
// requests of a single limit are one flow. The nth waiting request of a flow is
// for the nth round from now. So a flow with many requests delays the first one
// of another flow by at most one of them.
//
// Invariants:
//
//   - A request is in at most one line, and holds no lock while it waits there.
//   - What each waiter may take follows from the order of queue: see deal.
type line struct {
	queue  []*waiter      // in the order of their turns
	served map[int]uint64 // by priority: the latest round of which a request was served
}

// A flow is the number of the first slot of the first level. That of a single
// limit is 0.
type flow int64

// A waiter is a request in a line.
type waiter struct {
	lines *lines
	line  *line
	flow  flow
	p     *place
	round uint64 // in which it is served

	may     int                // how many of the slots of p, from the first, it may wait for in the Locker
	absent  bool               // its body is being read: others go first
	checked time.Time          // when the func of WithLimit was called last
	look    context.CancelFunc // ends its step: see next
}

// enter puts a request for p, of flow f, in the line of p. It returns nil if the
// flow has no place for it. The caller leaves the line with leave.
func (ls *lines) enter(p *place, f flow) *waiter {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.m[p.number]
	if ln == nil {
		ln = &line{served: make(map[int]uint64)}
		ls.m[p.number] = ln
	}
	priority, ofFlow := p.priority(), 0
	before := ln.served[priority]
	for _, other := range ln.queue {
		if other.flow == f {
			ofFlow++
			if other.p.priority() == priority {
				before = max(before, other.round)
			}
		}
	}
	if ofFlow >= p.l.maxWaiters {
		return nil
	}
	w := &waiter{lines: ls, line: ln, flow: f, p: p, round: before + 1, checked: time.Now(), look: func() {}}
	ls.waiting.Add(1)
	i, _ := slices.BinarySearchFunc(ln.queue, w, func(other, w *waiter) int {
		return cmp.Or(cmp.Compare(priority, other.p.priority()), cmp.Compare(other.round, w.round), -1)
	})
	ln.queue = slices.Insert(ln.queue, i, w)
	ln.deal()
	return w
}

// leave takes a request out of its line. served says whether it has got a lock
// there.
func (w *waiter) leave(served bool) {
	w.update(func() {
		w.look()
		ln := w.line
		if priority := w.p.priority(); served {
			ln.served[priority] = max(ln.served[priority], w.round)
		}
		w.lines.waiting.Add(-1)
		i := slices.Index(ln.queue, w)
		if ln.queue = slices.Delete(ln.queue, i, i+1); len(ln.queue) == 0 {
			delete(w.lines.m, w.p.number)
		}
	})
}

// update changes w or its place by f, and deals again.
func (w *waiter) update(f func()) {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	f()
	w.line.deal()
}

// deal says what each waiter may take. Those for which that has changed look
// again. lines.mu is held.
func (ln *line) deal() {
	first := true
	var ahead []*Class // with reserved slots
	for _, w := range ln.queue {
		may := 0
		switch {
		case w.absent:
		case first:
			first, may = false, len(w.p.slots)
			ahead = append(ahead, w.p.class)
		case w.p.reserved > 0 && !slices.Contains(ahead, w.p.class):
			may = w.p.reserved
			ahead = append(ahead, w.p.class)
		}
		if w.may != may {
			w.may = may
			w.look()
		}
	}
}

// withoutOvertaking returns the slots that a new request for p may try: it does
// not overtake requests of its Limiter that wait. There may be none.
func (p *place) withoutOvertaking() []sqllock.Key {
	ls := &p.l.lines
	if ls.waiting.Load() == 0 {
		return p.slots
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln, may := ls.m[p.number], len(p.slots)
	for i := 0; ln != nil && i < len(ln.queue); i++ {
		switch w := ln.queue[i]; {
		case w.absent:
		case w.p.class == p.class:
			return nil
		default:
			may = p.reserved
		}
	}
	return p.slots[:may]
}

// next returns how many slots w may wait for now, and whether it must look at
// its limit before that. The step ends when w is to call next again.
func (w *waiter) next(ctx context.Context) (step context.Context, may int, stale bool) {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	w.look() // ends the step before
	until := w.p.l.maxWait
	if w.p.l.limitOf != nil && w.may > 0 {
		until = time.Until(w.checked.Add(recheck))
		stale = until <= 0
	}
	step, w.look = context.WithTimeout(ctx, until)
	return step, w.may, stale
}
