package ratelimit

import (
	"context"
	"time"
)

// A waiter is a request in a line. lines.mu protects the fields behind wake.
type waiter struct {
	line *line
	p    *place
	flow flow
	rank uint64
	wake chan struct{} // a token: look again at the turn, and at the limit

	turn      turn
	calling   bool               // it is in the func of WithLimit
	absent    bool               // it has been there for long, and others go first
	changed   bool               // the func had another result for another request
	interrupt context.CancelFunc // ends its wait in the Locker; nil: it is not there
}

// A turn says for which slots a waiter may wait in the Locker.
type turn uint8

const (
	noTurn       turn = iota
	reservedOnly      // for those that are reserved for its class
	allSlots
)

// deal gives each waiter its turn. Those that have got another one look again.
// lines.mu is held.
func (ln *line) deal() {
	type pool struct {
		slots int      // of a Limiter without policies: all such requests want the same
		l     *Limiter // of other Limiters
		class *class   // one with reserved places, or nil: the whole pool
	}
	ahead := make(map[pool]bool)
	for _, w := range ln.queue {
		of := pool{l: w.p.l}
		if w.p.l.limitOf == nil && w.p.l.classOf == nil {
			of = pool{slots: w.p.l.slots}
		}
		mine := of
		mine.class = w.p.class
		now := noTurn
		switch {
		case w.absent:
		case !ahead[of]:
			now = allSlots
		case w.p.slots.reserved > 0 && !ahead[mine]:
			now = reservedOnly
		}
		if !w.absent {
			ahead[of] = true
			if w.p.slots.reserved > 0 {
				ahead[mine] = true
			}
		}
		if w.turn != now {
			w.turn = now
			w.look()
		}
	}
}

// look has w look again at its turn. lines.mu is held.
func (w *waiter) look() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
	if w.interrupt != nil {
		w.interrupt()
	}
}

// turnNow returns the turn of w, which looks at it now.
func (w *waiter) turnNow() turn {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	select {
	case <-w.wake:
	default:
	}
	return w.turn
}

// atLocker runs f, which waits in the Locker, until w has another turn.
func (w *waiter) atLocker(ctx context.Context, now turn, f func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines.mu.Lock()
	if w.changed || w.turn != now {
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
func (w *waiter) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// mayTry returns the slots that a new request for p may try: it does not overtake
// those that wait. If there are none, the result has no key.
func (p *place) mayTry() slotSet {
	if waits.Load() == 0 {
		return p.slots
	}
	lines.mu.Lock()
	defer lines.mu.Unlock()
	ln := lines.m[p.lineID()]
	if ln == nil {
		return p.slots
	}
	slots := p.slots
	for _, w := range ln.queue {
		switch {
		case w.absent, w.p == p, w.p.l != p.l && (p.l.limitOf != nil || p.l.classOf != nil || w.p.l.slots != p.l.slots):
		case w.p.class == p.class:
			return slotSet{}
		default:
			slots = p.slots.ofClass()
		}
	}
	return slots
}

// recheck is how long a waiting request goes by one result of WithLimit.
const recheck = 100 * time.Millisecond

// slow is how long the func of WithLimit may take before the turn goes on to
// the next request.
const slow = time.Millisecond

// updateLimit calls the func of WithLimit again.
func (w *waiter) updateLimit(ctx context.Context) error {
	passes := time.AfterFunc(slow, w.passTurn)
	w.setCalling(true)
	defer func() {
		passes.Stop()
		w.setCalling(false)
	}()
	before := w.p.limit
	if err := w.p.findLimit(ctx); err != nil {
		return err
	}
	if w.p.limit != before {
		lines.mu.Lock()
		defer lines.mu.Unlock()
		w.p.choose()
		w.line.deal()
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
		w.absent = false
		w.line.deal()
	}
}

// passTurn has others go first, unless the func of WithLimit has just returned.
func (w *waiter) passTurn() {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if w.calling {
		w.absent = true
		w.line.deal()
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
	if p.l.limitOf == nil || waits.Load() == 0 {
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
