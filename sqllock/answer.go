package sqllock

import (
	"fmt"
	"slices"
)

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
	switch {
	case e.state == idle && len(e.asks) > 0 && !e.pending() && !t.closed:
		t.resumeLocked(e)
	case e.state == held && e.shared: // who has left may have stood before readers
		t.admitLocked(e)
	default:
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
		t.dismissOneLocked(e, a, err)
	}
}

// dismissBusyLocked is dismissLocked after the answer that somebody else holds e's key. That it
// is not to be had alone says nothing of those who would read beside others.
func (t *table) dismissBusyLocked(e *entry) {
	for i := 0; i < len(e.asks); {
		a := e.asks[i]
		if a.waits || a.number > e.upTo || a.shared && !e.shared {
			i++
			continue
		}
		t.dismissOneLocked(e, a, ErrHeld)
	}
}

// dismissOneLocked takes a off e, with err.
func (t *table) dismissOneLocked(e *entry, a *ask, err error) {
	e.drop(a)
	a.entries[slices.Index(a.entries, e)] = nil
	a.open--
	switch {
	case a.open == 0 || a.all || err != ErrHeld:
		t.settleLocked(a, nil, err)
	case a.unasked():
		t.source.askGroup(a)
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
