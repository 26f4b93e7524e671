package keytable

import (
	"context"
	"fmt"
	"time"
)

// A Want is what a call wants. The zero value tries for a key exclusively.
type Want struct {
	Mode  Mode
	Waits bool // it stays in line until it gets a key, or its context ends; else it only tries

	Label string // for the holds that it gets
}

// A Request is one call. The table's mu protects it.
type Request struct {
	Want
	number uint64 // the table's count of calls at this one

	group   *Group // in whose line it is; nil: in none
	inLine  call
	arrival call // if it only tries and is not decided at once

	levels []*Group      // of which it wants a key each; nil: it is for a key of group
	wide   bool          // it has failed with one key of each level, and tries more now
	why    error         // what the source has denied it with, if not ErrHeld
	due    time.Duration // it is not tried again before; 0: a Poll tries it

	decided bool
	parked  bool // its caller waits for the token in done
	hold    *Hold
	holds   []*Hold // of each level
	err     error
	done    chan struct{} // holds a token when decided, if parked
}

// Acquire acquires a key, or waits for it. It returns ErrHeld, the error of ctx,
// or an error of the source.
func (t *Table) Acquire(ctx context.Context, w Want, id ID) (*Hold, error) {
	r, err := t.begin(ctx, w)
	if err != nil {
		return nil, err
	}
	t.place(r, &t.state(id).own)
	h, _, err := t.await(ctx, r)
	return h, err
}

// Keys are N keys, of which a call wants one. At returns each of them. Keys with
// the same Of, which is not nil, are the same.
type Keys struct {
	N  int
	At func(int) ID
	Of any
}

// AcquireAny acquires one of keys, or waits for one.
func (t *Table) AcquireAny(ctx context.Context, w Want, keys Keys) (*Hold, error) {
	r, err := t.begin(ctx, w)
	if err != nil {
		return nil, err
	}
	t.place(r, t.group(keys))
	h, _, err := t.await(ctx, r)
	return h, err
}

// AcquireEach acquires one key of each level, or none. The keys are different. If
// levels have some in common, it may choose so that a level has none left. If no
// key of a level is free, the error is a *FullError. A call that waits is tried
// again from time to time, and may be overtaken. Holds are in the order of levels.
func (t *Table) AcquireEach(ctx context.Context, w Want, levels []Keys) ([]*Hold, error) {
	r, err := t.begin(ctx, w)
	if err != nil {
		return nil, err
	}
	r.levels = make([]*Group, len(levels))
	for i, keys := range levels {
		r.levels[i] = t.group(keys)
	}
	t.placeStack(r)
	_, holds, err := t.await(ctx, r)
	return holds, err
}

// begin locks the table and returns a request, which comes now. If ctx has ended,
// it returns that error, and the table is not locked.
func (t *Table) begin(ctx context.Context, w Want) (*Request, error) {
	if err := ctx.Err(); err != nil {
		t.Count(err)
		return nil, err
	}
	r := t.memory.Get().(*Request)
	t.mu.Lock()
	t.calls++
	r.Want, r.number, r.inLine.request, r.arrival.request = w, t.calls, r, r
	if w.Waits {
		t.waiting++
	}
	return r, nil
}

// place decides r, for one key of g, from the table where that can be done.
// Otherwise it puts r in the line of g.
func (t *Table) place(r *Request, g *Group) {
	t.touch(g)
	if t.closed != nil {
		t.decide(r, nil, t.closed)
		return
	}
	reached := false // r waits for the source, or for a caller
	for _, k := range g.keys {
		switch {
		case t.takeOver(k, r):
			return
		case !k.blocks(r.Mode, g):
			reached = true
		}
	}
	switch {
	case r.Waits:
	case !reached || g.waits > 0 && g.keys[0].ahead(r.Mode) > 0:
		t.decide(r, nil, ErrHeld)
		return
	case t.away != nil:
		t.decide(r, nil, t.away)
		return
	}
	t.lineUp(r, g)
}

// takeOver grants k to r if that needs no source: this process is about to give
// k back, or r joins readers. No waiting request is overtaken, and no stack that
// wants k itself.
func (t *Table) takeOver(k *State, r *Request) bool {
	if k.mode != r.Mode || k.ahead(r.Mode) > 0 {
		return false
	}
	switch {
	case k.phase == releasing && t.away == nil && k.own.stacks == 0 && t.mayPass(k):
		t.answer(k, nil)
		k.acquired = t.config.Now()
	case k.joinable():
	default:
		return false
	}
	t.grant(k, r)
	return true
}

// lineUp puts r in the line of g.
func (t *Table) lineUp(r *Request, g *Group) {
	r.group = g
	g.line.push(&r.inLine)
	if !r.Waits {
		g.tries++
		g.last = r.number
		t.arrive(&r.arrival)
		return
	}
	if g.waits++; g.waits == 1 {
		g.fresh = r.number // it tries at once; later ones are behind it
	}
	if r.Mode == Shared {
		g.read++
	}
	for _, k := range g.keys {
		k.waits++
	}
}

// leave takes r out of the line that it is in.
func (t *Table) leave(r *Request) {
	g := r.group
	if g == nil {
		return
	}
	r.group = nil
	g.line.remove(&r.inLine)
	t.touch(g)
	if !r.Waits {
		g.tries--
		return
	}
	g.waits--
	if r.Mode == Shared {
		g.read--
	}
	for _, k := range g.keys {
		k.waits--
	}
}

// decide decides r and takes it off the table.
func (t *Table) decide(r *Request, h *Hold, err error) {
	r.decided, r.hold, r.err = true, h, err
	t.count(err)
	if r.Waits {
		t.waiting--
		delete(t.sets, r)
		delete(t.retries, r)
	}
	t.arrivals.remove(&r.arrival)
	t.leave(r)
	for _, g := range r.levels {
		g.stacks--
		t.touch(g)
	}
	if r.parked {
		t.wake(r.done)
	}
}

// wake puts the token for which a caller waits into its channel. The callers of
// one batch are woken once mu is free, because each of them locks it first.
func (t *Table) wake(done chan struct{}) {
	if t.waking {
		t.wakes = append(t.wakes, done)
	} else {
		done <- struct{}{}
	}
}

// await waits until r, which was placed, is decided, or its context ends. It
// unlocks the table.
func (t *Table) await(ctx context.Context, r *Request) (*Hold, []*Hold, error) {
	t.settle()
	t.serve()
	parked := !r.decided
	r.parked = parked
	t.mu.Unlock()
	switch {
	case !parked:
	case ctx.Done() == nil: // then a receive is cheaper than a select
		<-r.done
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			t.withdraw(r, ctx.Err())
		}
	}
	hold, holds, err := r.hold, r.holds, r.err
	if r.levels == nil { // else a batch may have it
		*r = Request{done: r.done}
		t.memory.Put(r)
	}
	return hold, holds, err
}

// withdraw decides r with err, unless it has been decided meanwhile. The error
// of a request that has waited also says why, if that was not another holder.
func (t *Table) withdraw(r *Request, err error) {
	t.mu.Lock()
	if !r.decided {
		if why := t.obstacle(r); why != nil {
			err = fmt.Errorf("%w: %w", why, err)
		}
		t.decide(r, nil, err)
	}
	t.unlock()
	<-r.done
}

// obstacle returns why r, if it has waited, got no key. It is nil if other
// holders are the only reason.
func (t *Table) obstacle(r *Request) error {
	switch {
	case !r.Waits:
		return nil
	case t.away != nil:
		return t.away
	case r.group == nil:
		return r.why
	}
	return r.group.why
}

// unlock restores the invariants of the table, and unlocks it.
func (t *Table) unlock() {
	t.settle()
	t.serve()
	t.mu.Unlock()
}
