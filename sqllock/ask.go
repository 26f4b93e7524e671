package sqllock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// An ask is one call that wants one of keys, or all.
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
	shared  bool     // it wants its one key as one of several readers
	all     bool     // it wants all of its keys, and does not wait
	grouped bool     // it stands in the source's queue, for askGroup
	settled bool
	parked  bool // the caller waits for the token in done
	lock    *Lock
	locks   Locks // of one that wants all
	err     error
	done    chan struct{} // holds a token when settled, if parked

	// For the registry, of one that waits: since when, and what its caller holds.
	since   time.Duration
	holding []dialect.Key

	oneKey   [1]Key
	oneEntry [1]*entry
}

// acquire takes key, or waits for it.
func (t *table) acquire(ctx context.Context, key Key, waits bool) (*Lock, error) {
	return t.acquireOne(ctx, key, waits, false)
}

// acquireShared takes key as one of several readers, or waits for it.
func (t *table) acquireShared(ctx context.Context, key Key, waits bool) (*Lock, error) {
	return t.acquireOne(ctx, key, waits, true)
}

func (t *table) acquireOne(ctx context.Context, key Key, waits, shared bool) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	a := t.asks.Get().(*ask)
	a.shared = shared
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
	if ctx.Err() != nil {
		return nil, ended(ctx)
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
	if waits {
		t.noteWait(a)
	}
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
		return t.giveUp(a, ended(ctx))
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
		} else if reason := t.inVainLocked(a); reason != nil {
			err = fmt.Errorf("%w: %w", reason, cause)
		}
		t.settleLocked(a, nil, err)
	}
	t.mu.Unlock()
	<-a.done
	return a.lock, a.err
}

// inVainLocked is why a has waited in vain: the source is away, or will not ask for its
// key; nil if somebody else simply had it.
func (t *table) inVainLocked(a *ask) error {
	if !a.waits {
		return nil
	}
	if err := t.source.away(a.firstEntry()); err != nil || t.disputed == nil {
		return err
	}
	for _, e := range a.entries {
		if e != nil && t.disputed(e) != nil {
			return t.disputed(e)
		}
	}
	return nil
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
	if a.all {
		t.enlistAllLocked(a)
		return
	}
	fresh := 0 // entries that nobody asks for yet
	var last *entry
	for i, key := range a.keys {
		e := t.entries.of(key.id())
		away := t.source.away(e)
		switch {
		case e != nil && e.state == releasing && len(e.asks) == 0 && away == nil && t.mayHandOverLocked(e, a, key):
			t.settleReplyLocked(e, nil)
			t.reacquiredLocked(e)
			t.giveLocked(e, a, key)
			return
		case e != nil && a.shared && t.mayJoinLocked(e, key):
			t.giveLocked(e, a, key)
			return
		case e != nil && !a.waits && e.state == held:
			continue // refused
		case away != nil && !a.waits:
			t.settleLocked(a, nil, away)
			return
		case e == nil:
			e = t.newEntryLocked(key.id())
		case !a.waits && e.waitedBefore(a):
			continue // refused: others are in line
		}
		if key.print != 0 {
			e.claim = key.claim()
		}
		e.asks = append(e.asks, a)
		a.entries[i] = e
		a.open++
		if e.state == idle && e.polling && !a.waits { // readers wait in line before one who tries
			e.polling = false
			e.timer.Stop()
		}
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
		t.source.askGroup(a)
	}
}

// waitedBefore reports whether somebody is in line for e whom a, who only tries, may not pass: anybody, but for
// readers by a reader.
func (e *entry) waitedBefore(a *ask) bool {
	return slices.ContainsFunc(e.asks, func(other *ask) bool { return other.waits && !(other.shared && a.shared) })
}

// waited reports whether somebody is in line for e. Those who only try come
// and go; who waits stays.
func (e *entry) waited() bool {
	return slices.ContainsFunc(e.asks, func(a *ask) bool { return a.waits })
}
