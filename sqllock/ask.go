package sqllock

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// An ask is one call that wants one of keys.
//
// Invariant: until it is settled, it is in entries[i].asks for each entries[i]
// that is not nil, and in no other; then it is in none.
type ask struct {
	ctx     context.Context
	keys    []Key
	entries []*entry // beside keys; nil where the key was refused
	open    int      // how many are not nil
	number  uint64   // the count of calls at this one
	waits   bool     // it stays until it gets a key
	grouped bool     // it stands in the source's queue, for askAny
	settled bool
	parked  bool // the caller waits for the token in done
	lock    *Lock
	err     error
	done    chan struct{} // holds a token when settled, if parked

	oneKey   [1]Key
	oneEntry [1]*entry
}

// acquire takes key, or waits for it.
func (t *table) acquire(ctx context.Context, key Key, waits bool) (*Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a := t.asks.Get().(*ask)
	a.oneKey[0], a.oneEntry[0] = key, nil
	a.keys, a.entries = a.oneKey[:], a.oneEntry[:]
	lock, err := t.run(ctx, a, waits)
	*a = ask{done: a.done}
	t.asks.Put(a)
	return lock, err
}

// acquireAny takes the first free one of keys, or waits for one.
func (t *table) acquireAny(ctx context.Context, keys []Key, waits bool) (*Lock, error) {
	distinct := distinctKeys(keys)
	switch len(distinct) {
	case 0:
		return nil, errNoKeys
	case 1:
		return t.acquire(ctx, distinct[0], waits)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a := &ask{keys: distinct, entries: make([]*entry, len(distinct)), done: make(chan struct{}, 1)}
	return t.run(ctx, a, waits)
}

// distinctKeys is keys without those that the database could not tell apart.
func distinctKeys(keys []Key) []Key {
	distinct := make([]Key, 0, len(keys))
	for _, k := range keys {
		if !slices.ContainsFunc(distinct, func(d Key) bool { return d.id() == k.id() }) {
			distinct = append(distinct, k)
		}
	}
	return distinct
}

// run puts a on the table and waits until it is settled or ctx ends.
func (t *table) run(ctx context.Context, a *ask, waits bool) (*Lock, error) {
	a.ctx, a.waits = ctx, waits
	t.mu.Lock()
	t.enlistLocked(a)
	if a.settled {
		t.mu.Unlock()
		return a.lock, a.err
	}
	a.parked = true
	t.mu.Unlock()
	var timeout <-chan time.Time
	if t.patience > 0 && !waits {
		timer := time.NewTimer(t.patience)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-a.done:
		return a.lock, a.err
	case <-ctx.Done():
		return t.giveUp(a, ctx.Err())
	case <-timeout:
		return t.giveUp(a, nil)
	}
}

// giveUp takes a off the table, unless its verdict has come meanwhile: because
// its context ended with cause, or, if that is nil, because patience is used up.
func (t *table) giveUp(a *ask, cause error) (*Lock, error) {
	t.mu.Lock()
	if !a.settled {
		err := cause
		if cause == nil {
			err = t.silentLocked()
		} else if away := t.source.away(a.firstEntry()); a.waits && away != nil {
			err = fmt.Errorf("%w: %w", away, cause)
		}
		t.settleLocked(a, nil, err)
	}
	t.mu.Unlock()
	<-a.done
	return a.lock, a.err
}

// firstEntry is an entry that a is on; nil if there is none.
func (a *ask) firstEntry() *entry {
	for _, e := range a.entries {
		if e != nil {
			return e
		}
	}
	return nil
}

// enlistLocked answers a from the table where that can be done, and else sees that
// its keys are asked for.
func (t *table) enlistLocked(a *ask) {
	t.asked++
	a.number = t.asked
	if a.waits {
		t.waiting++
	}
	if t.closed {
		t.settleLocked(a, nil, ErrClosed)
		return
	}
	fresh := 0 // entries that nobody asks for yet
	var last *entry
	for i, key := range a.keys {
		e := t.entries.of(key.id())
		away := t.source.away(e)
		switch {
		case e != nil && e.state == releasing && len(e.asks) == 0 && away == nil && t.mayHandOverLocked(e):
			t.settleReplyLocked(e, nil)
			t.giveLocked(e, a, key)
			return
		case e != nil && !a.waits && e.state == held:
			continue // refused
		case away != nil && !a.waits:
			t.settleLocked(a, nil, away)
			return
		case e == nil:
			e = t.newEntryLocked(key.id())
		case !a.waits && e.waited():
			continue // refused: others are in line
		}
		if key.print != 0 && t.claimOf != nil {
			e.claim = t.claimOf(key)
		}
		e.asks = append(e.asks, a)
		a.entries[i] = e
		a.open++
		if e.state == idle && !e.polling {
			fresh++
			last = e
		}
	}
	switch {
	case a.open == 0:
		t.settleLocked(a, nil, ErrHeld)
	case fresh == 1:
		t.source.ask(last)
	case fresh > 1:
		t.source.askAny(a)
	}
}

// waited reports whether somebody is in line for e. Those who only try come
// and go; who waits stays.
func (e *entry) waited() bool {
	return slices.ContainsFunc(e.asks, func(a *ask) bool { return a.waits })
}

// settleLocked gives a its verdict and takes it off the table.
func (t *table) settleLocked(a *ask, lock *Lock, err error) {
	a.settled, a.lock, a.err = true, lock, err
	if a.waits {
		t.waiting--
	}
	for _, e := range a.entries { // of all before anything else: what follows may come back here
		if e != nil {
			e.drop(a)
		}
	}
	for i, e := range a.entries {
		if e != nil {
			a.entries[i] = nil
			t.keepGoingLocked(e)
		}
	}
	if a.parked {
		t.wakeLocked(a.done)
	}
}

// wakeLocked puts the token for which a caller waits in its channel. Those whom
// one statement answers are woken after the mutex is free: the first thing
// that each of them does is to ask for it.
func (t *table) wakeLocked(done chan struct{}) {
	if t.wakes != nil {
		*t.wakes = append(*t.wakes, done)
	} else {
		done <- struct{}{}
	}
}

// keepGoingLocked sees that e, which may have lost who was to ask for it, is asked for
// as long as it is wanted, and forgotten when it is not.
func (t *table) keepGoingLocked(e *entry) {
	if e.state == idle && len(e.asks) > 0 && !e.pending() && !t.closed {
		t.resumeLocked(e)
	} else {
		t.tidyLocked(e)
	}
}

// pending reports whether an idle e will be asked for without more ado.
func (e *entry) pending() bool {
	return e.polling || slices.ContainsFunc(e.asks, func(a *ask) bool { return a.grouped })
}

func (e *entry) drop(a *ask) {
	if i := slices.Index(e.asks, a); i >= 0 {
		e.asks = slices.Delete(e.asks, i, i+1)
	}
}

// everybody is for dismissLocked: no call has a higher number.
const everybody = ^uint64(0)

// dismissLocked settles those who only try for e and came no later than the call
// numbered upTo: with err, or, if they are refused and try for other keys too,
// when the last key has refused them.
func (t *table) dismissLocked(e *entry, err error, upTo uint64) {
	for i := 0; i < len(e.asks); {
		a := e.asks[i]
		if a.waits || a.number > upTo {
			i++
			continue
		}
		e.asks = slices.Delete(e.asks, i, i+1)
		a.entries[slices.Index(a.entries, e)] = nil
		a.open--
		switch {
		case a.open == 0 || err != ErrHeld:
			t.settleLocked(a, nil, err)
		case a.unasked():
			t.source.askAny(a)
		}
	}
}

// unasked reports whether there is a key that a wants and nobody asks for.
func (a *ask) unasked() bool {
	return slices.ContainsFunc(a.entries, func(e *entry) bool {
		return e != nil && e.state == idle && !e.polling
	})
}

// silentLocked is the error when patience is used up.
func (t *table) silentLocked() error {
	if t.silence != nil {
		t.silence()
	}
	return fmt.Errorf("%w: no answer within %v", ErrUnavailable, t.patience)
}
