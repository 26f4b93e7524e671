package sqllock

import (
	"time"
)

// settle gives everybody the answers of the flight. It reports whether l lives.
func (l *lease) settle() bool {
	t, f := l.backend.s.table, &l.flight
	if len(f.batch.NotHeld) > 0 {
		l.lose(lossUnlock)
		return false
	}
	t.mu.Lock()
	t.wakes = &f.wakes
	alive := l.settleLocked()
	t.wakes = nil
	t.mu.Unlock()
	f.wake()
	return alive
}

// wake wakes those who have their answers.
func (f *flight) wake() {
	for _, done := range f.wakes {
		done <- struct{}{}
	}
	clear(f.wakes)
	f.wakes = f.wakes[:0]
}

func (l *lease) settleLocked() bool {
	b, t, f := l.backend, l.backend.s.table, &l.flight
	answered := now()
	if !l.answeredLocked(answered) {
		return false
	}
	l.failed = 0
	for _, e := range f.releases {
		l.freedLocked(e)
	}
	for _, key := range f.batch.Busy {
		if e := t.entries.of(key.Exclusive()); e != nil {
			e.busy = true
		}
	}
	for _, e := range f.tries {
		if e.busy {
			e.busy = false
			l.refusedLocked(e, ErrHeld)
		} else {
			l.grantedLocked(e, answered)
		}
	}
	for i, g := range f.groups {
		l.settleGroupLocked(g, f.batch.Won[i], answered)
	}
	for i, g := range f.sets {
		l.settleSetLocked(g, f.batch.Missing[i], answered)
	}
	f.clear()
	l.pace.roundTrip, l.pace.answered = answered-f.sent, len(f.wakes)
	b.s.counters.exchanged(answered - f.sent)
	return true
}

// settleGroupLocked: the key at won was taken, those before it are held elsewhere, and
// of those after it nothing is known.
func (l *lease) settleGroupLocked(g group, won int, at time.Duration) {
	if won >= 0 {
		l.grantedLocked(g.entries[won], at)
	}
	for i, e := range g.entries {
		switch {
		case won < 0 || i < won:
			l.refusedLocked(e, ErrHeld)
		case i > won:
			l.untestedLocked(e)
		}
	}
}

// settleSetLocked: all keys were taken, or none, since that at missing is held elsewhere.
func (l *lease) settleSetLocked(g group, missing int, at time.Duration) {
	if missing < 0 {
		l.held += len(g.entries)
		l.backend.s.table.grantedAllLocked(g.ask, g.entries, func(e *entry) holding { return holding{lease: l, stake: e.stake} }, at)
		return
	}
	l.refusedLocked(g.entries[missing], ErrHeld)
	for i, e := range g.entries {
		if i != missing {
			l.untestedLocked(e)
		}
	}
}

func (l *lease) untestedLocked(e *entry) {
	e.stake.usedLocked(-1)
	e.state = idle
	l.backend.s.table.keepGoingLocked(e)
}

func (l *lease) grantedLocked(e *entry, at time.Duration) {
	l.held++
	l.backend.s.table.grantedLocked(e, holding{lease: l, stake: e.stake}, at)
}

func (l *lease) refusedLocked(e *entry, err error) {
	e.stake.usedLocked(-1)
	l.backend.s.table.refusedLocked(e, err)
}

func (l *lease) freedLocked(e *entry) {
	l.held--
	e.holds.stake.usedLocked(-1)
	l.backend.s.table.freedLocked(e, nil)
}

// answeredLocked notes that the statement under way was answered at this time,
// and reports whether that is in time. table.mu is held.
func (l *lease) answeredLocked(at time.Duration) bool {
	l.flight.underWay = false
	if l.dead.Load() {
		return false
	}
	l.served = true
	// Too late for what was held: the timer is about to say so. (After a suspend, what
	// comes late by the other clock moves that deadline no further than it may.)
	if l.late() {
		l.timer.Reset(0)
		return false
	}
	trust := l.backend.s.options.trust()
	l.deadline.Store(int64(l.flight.sent + trust))
	l.deadlineBoot.Store(int64(l.flight.sentBoot + trust))
	if l.stalled {
		l.stalled, l.backend.away = false, nil
	}
	l.armLocked()
	return true
}

// failLocked tells the flight's callers that there is no answer yet. What it brings
// after all is given back.
func (f *flight) failLocked(t *table, err error) {
	if !f.underWay {
		return
	}
	for _, e := range f.releases {
		t.settleReplyLocked(e, err)
		t.dismissLocked(e, err, everybody)
	}
	for _, e := range f.tries {
		t.dismissLocked(e, err, everybody)
	}
	for _, groups := range [][]group{f.groups, f.sets} {
		for _, g := range groups {
			for _, e := range g.entries {
				t.dismissLocked(e, err, everybody)
			}
		}
	}
}
