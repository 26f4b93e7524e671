package ratelimit

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// A waiter is a request that takes turns in a line: one for a stack, or of a
// Limiter with WithLimit. The first waiter alone waits in the line of the
// Locker, as a bell. When it rings, the waiter tries for all that it needs.
//
// Invariant: a waiter is in the queue of its line exactly while its request is
// in that line.
type waiter struct {
	line *line
	p    *place
	rank uint64
	wake chan struct{} // a token: look again whose turn it is, and at the limit

	// lines.mu protects these.
	calling   bool               // it is in the func of WithLimit
	absent    bool               // it has been there for long, and others go first
	changed   bool               // the func had another result for another request
	interrupt context.CancelFunc // ends its wait in the Locker's line; nil: it is not there
}

// queues counts the waiters of all lines, so that a request need not look for
// them while there is none.
var queues atomic.Int64

// enterQueue has p, which is in its line, take turns there.
func (p *place) enterQueue() *waiter {
	w := &waiter{line: p.ticket.line, p: p, rank: p.ticket.rank(p.priority()), wake: make(chan struct{}, 1)}
	queues.Add(1)
	lines.mu.Lock()
	defer lines.mu.Unlock()
	q := w.line.queue
	i, _ := slices.BinarySearchFunc(q, w.rank+1, func(other *waiter, rank uint64) int { return cmp.Compare(other.rank, rank) })
	before := w.line.first(w.pool())
	w.line.queue = slices.Insert(q, i, w)
	if before != nil && w.line.first(w.pool()) == w {
		before.look()
	}
	if w.line.limits == nil {
		w.line.limits = make(map[*Limiter]int)
	}
	if _, ok := w.line.limits[p.l]; !ok {
		w.line.limits[p.l] = p.limit
	}
	return w
}

// leaveQueue ends the turns of w.
func (w *waiter) leaveQueue() {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	first := w.line.first(w.pool())
	if i := slices.Index(w.line.queue, w); i >= 0 {
		w.line.queue = slices.Delete(w.line.queue, i, i+1)
	}
	queues.Add(-1)
	if first == w {
		w.line.first(w.pool()).look()
	}
}

// A pool is the waiters of a line that want the same slots, so that one of them
// may wait for all.
type pool struct {
	slots int      // of a Limiter without policies; all of them want the same
	l     *Limiter // of other Limiters
	class *class   // one with reserved places, or nil
}

func (w *waiter) pool() pool { return w.p.pool() }

func (p *place) pool() pool {
	switch {
	case p.l.limitOf == nil && p.l.classOf == nil:
		return pool{slots: p.l.slots}
	case p.class != nil && p.class.Reserved > 0:
		return pool{l: p.l, class: p.class}
	}
	return pool{l: p.l}
}

// first returns the waiter of this pool whose turn it is, or nil. lines.mu is
// held.
func (ln *line) first(of pool) *waiter {
	for _, w := range ln.queue {
		if !w.absent && w.pool() == of {
			return w
		}
	}
	return nil
}

// look has w look again whose turn it is. lines.mu is held. w may be nil.
func (w *waiter) look() {
	if w == nil {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	if w.interrupt != nil {
		w.interrupt()
	}
}

// isFirst reports whether it is the turn of w.
func (w *waiter) isFirst() bool {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	return w.line.first(w.pool()) == w
}

// atTheBell runs f, which waits in the line of the Locker until it is no longer
// the turn of w.
func (w *waiter) atTheBell(ctx context.Context, f func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines.mu.Lock()
	if w.changed || w.line.first(w.pool()) != w {
		cancel()
	}
	w.interrupt = cancel
	lines.mu.Unlock()
	f(ctx)
	lines.mu.Lock()
	w.interrupt = nil
	lines.mu.Unlock()
}

// sleep waits until w should look again, for at most d.
func (w *waiter) sleep(ctx context.Context, d time.Duration) (woken bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.wake:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// awaited reports whether another request takes turns for the slots of p. Then
// a new request must not overtake it.
func (p *place) awaited() bool {
	if queues.Load() == 0 {
		return false
	}
	lines.mu.Lock()
	defer lines.mu.Unlock()
	ln := lines.m[p.lineID()]
	return ln != nil && ln.first(p.pool()) != nil
}

// recheck is how long a waiting request goes by one result of WithLimit.
const recheck = 100 * time.Millisecond

// slow is how long the func of WithLimit may take before the turn goes on to
// the next request.
const slow = time.Millisecond

// updateLimit calls the func of WithLimit again.
func (w *waiter) updateLimit(ctx context.Context) error {
	turn := time.AfterFunc(slow, w.passTurn)
	w.setCalling(true)
	defer func() {
		turn.Stop()
		w.setCalling(false)
	}()
	before := w.p.limit
	if err := w.p.findLimit(ctx); err != nil {
		return err
	}
	if w.p.limit != before {
		w.p.choose()
	}
	return nil
}

// setCalling notes whether w is in the func of WithLimit. When it returns, w
// has its turn again.
func (w *waiter) setCalling(yes bool) {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	w.calling = yes
	if !yes && w.absent {
		standIn := w.line.first(w.pool())
		w.absent = false
		if w.line.first(w.pool()) == w {
			standIn.look() // away from the bell
		}
	}
}

// passTurn has others go first, unless the func of WithLimit has just returned.
func (w *waiter) passTurn() {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if w.calling {
		w.absent = true
		w.line.first(w.pool()).look()
	}
}

// takeChanged reports whether the limit is to be looked at again.
func (w *waiter) takeChanged() bool {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	changed := w.changed
	w.changed = false
	return changed
}

// spread has the requests that wait look at their limit, if p, which is new,
// has another one than the last.
func (p *place) spread() {
	if p.l.limitOf == nil || queues.Load() == 0 {
		return
	}
	lines.mu.Lock()
	defer lines.mu.Unlock()
	ln := lines.m[p.lineID()]
	if ln == nil || ln.limits == nil || ln.limits[p.l] == p.limit {
		return
	}
	ln.limits[p.l] = p.limit
	for _, w := range ln.queue {
		if w.p.l == p.l {
			w.changed = true
			w.look()
		}
	}
}

// wakeLine has the first waiters of an id try again, as a hold of the id ends.
func (l *Limiter) wakeLine(number int64) {
	if l.limitOf == nil || queues.Load() == 0 {
		return
	}
	lines.mu.Lock()
	defer lines.mu.Unlock()
	ln := lines.m[lineID{l.home, number}]
	if ln == nil {
		return
	}
	for _, w := range ln.queue {
		if w.interrupt == nil && w.line.first(w.pool()) == w {
			w.look()
		}
	}
}
