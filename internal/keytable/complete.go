package keytable

import "time"

// Complete acts on the response to b, which owner o has sent, at this time.
// Callers are woken at its end, all together. It returns how many.
func (t *Table) Complete(o *Owner, b *Batch, at time.Duration) (woken int) {
	t.mu.Lock()
	t.collectWakes(b)
	if !o.dead {
		t.complete(o, b, at)
	}
	t.settle()
	return t.unlockAndWake(b)
}

// collectWakes has callers woken by unlockAndWake.
func (t *Table) collectWakes(b *Batch) { t.waking, t.wakes = true, b.wakes[:0] }

// unlockAndWake unlocks the table, and wakes the callers that were decided. It
// returns how many.
func (t *Table) unlockAndWake(b *Batch) int {
	b.wakes, t.wakes, t.waking = t.wakes, nil, false
	t.mu.Unlock()
	for _, done := range b.wakes {
		done <- struct{}{}
	}
	clear(b.wakes)
	return len(b.wakes)
}

func (t *Table) complete(o *Owner, b *Batch, at time.Duration) {
	for _, k := range b.Releases {
		t.freed(k, nil)
	}
	for i := range b.Looks {
		t.completeLook(o, b, &b.Looks[i], at)
	}
	for i := range b.Stacks {
		t.completeStack(o, b, &b.Stacks[i], at)
	}
	b.clear()
}

// completeLook serves the requests of the group, in order. Those that came
// before the look was sent have seen each key that it has not got.
func (t *Table) completeLook(o *Owner, b *Batch, l *Look, at time.Duration) {
	g := l.group
	g.looking, g.why = false, nil
	g.wide = g.wide || len(l.Won) < l.Want && !l.all
	w := 0
	for i, k := range l.Keys {
		switch {
		case w < len(l.Won) && l.Won[w] == i:
			w++
			t.keep(k, o, at)
			continue
		case w < len(l.Won), len(l.Won) < l.Want: // else it was not tried
			k.denied(b.upTo, k.mode)
		}
		t.turn(k, idle)
	}
	for _, i := range l.Won {
		t.give(l.Keys[i])
	}
}

// keep notes that o has k from now on.
func (t *Table) keep(k *State, o *Owner, at time.Duration) {
	t.held++
	o.held++
	k.owner, k.acquired = o, at
	if k.since == 0 {
		k.since = at
	}
}

// Reconcile acts on the failure of b with err, of which o is not lost. A
// statement that fails half-way keeps what it had got: holds reports what o
// holds now. A key that it should have given back is queued again, and the source
// is not woken for that.
func (t *Table) Reconcile(o *Owner, b *Batch, at time.Duration, holds func(ID, Mode) bool, err error) {
	t.mu.Lock()
	t.collectWakes(b)
	if !o.dead {
		t.reconcile(o, b, at, holds, err)
	}
	t.settle()
	t.unlockAndWake(b)
}

func (t *Table) reconcile(o *Owner, b *Batch, at time.Duration, holds func(ID, Mode) bool, err error) {
	for _, k := range b.Releases {
		if !k.retaken && holds(k.id, k.mode) {
			t.turn(k, releasing)
			o.releases = append(o.releases, k)
		} else {
			t.freed(k, nil)
		}
	}
	regain := func(k *State) bool {
		if !holds(k.id, k.mode) {
			t.turn(k, idle)
			return false
		}
		t.keep(k, o, at)
		return true
	}
	for i := range b.Looks {
		l := &b.Looks[i]
		l.group.looking = false
		for _, k := range l.Keys {
			if regain(k) {
				t.give(k)
			}
		}
		t.refuse(l.group, err)
	}
	for i := range b.Stacks {
		s := &b.Stacks[i]
		for _, keys := range s.Levels {
			for _, k := range keys {
				if regain(k) {
					t.give(k)
				}
			}
		}
		t.denyStack(s.request, err)
	}
	b.clear()
}

// Lose notes, once, that o is lost, with all that it held, and with b, which may
// be under way. The calls that b has tried for fail with err. It returns the
// holds that have ended, for the source to announce.
func (t *Table) Lose(o *Owner, b *Batch, err error) (ends Ends) {
	t.mu.Lock()
	defer t.unlock()
	o.dead = true
	for k := range t.keys.all {
		if k.owner == o {
			ends = k.endAll(ends, Lost)
			t.freed(k, ErrLost)
		}
	}
	for i := range b.Looks {
		l := &b.Looks[i]
		l.group.looking = false
		for _, k := range l.Keys {
			t.turn(k, idle)
		}
		t.refuse(l.group, err)
	}
	for i := range b.Stacks {
		s := &b.Stacks[i]
		for _, keys := range s.Levels {
			for _, k := range keys {
				t.turn(k, idle)
			}
		}
		t.denyStack(s.request, err)
	}
	return ends
}

// Stall tells those who wait for releases of o that are queued why the keys do
// not go back yet.
func (t *Table) Stall(o *Owner, err error) {
	t.mu.Lock()
	defer t.unlock()
	for _, k := range o.releases {
		if k.phase == releasing && k.owner == o {
			t.answer(k, err)
		}
	}
}

// Expire fails, with the error of why, the requests that only try and the
// Releases that came at this time or before. It returns when the oldest of the
// others came, if there are any.
func (t *Table) Expire(came time.Duration, why func() error) (oldest time.Duration, some bool) {
	t.mu.Lock()
	defer t.unlock()
	for a := t.first; a != nil; a = t.first {
		switch {
		case a.since > came:
			return a.since, true
		case a.request != nil:
			t.decide(a.request, nil, why())
		default:
			t.expire(a.reply, why())
		}
	}
	return 0, false
}

// SetAway notes that requests have no chance until a SetAway(nil). Those that
// only try fail with err, and so do later ones. What the statement under way
// brings for them goes back. Those that wait go on.
func (t *Table) SetAway(err error) {
	t.mu.Lock()
	defer t.unlock()
	t.away = err
	if err != nil {
		t.arrivals.each(func(r *Request) { t.decide(r, nil, err) })
	}
}

// Close ends all requests, and later ones, with err, and all holds. It returns
// those that have ended, for the caller to announce.
func (t *Table) Close(err error) (ends Ends) {
	t.mu.Lock()
	defer t.unlock()
	t.arrivals.each(func(r *Request) { t.decide(r, nil, err) })
	t.closed = err
	for k := range t.keys.all {
		ends = k.endAll(ends, Closed)
		for _, g := range append([]*Group{&k.own}, k.groups...) {
			g.line.each(func(r *Request) { t.decide(r, nil, err) })
		}
	}
	return ends
}
