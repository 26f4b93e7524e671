package keytable

import "time"

// Complete acts on the response to b, which owner o has sent, at this time.
// Callers are woken at its end, all together. It returns how many.
func (t *Table) Complete(o *Owner, b *Batch, at time.Duration) (woken int) {
	return t.finish(o, b, func() { t.complete(o, b, at) })
}

// finish calls act, unless o is lost, and empties b. Callers who are decided are
// woken once the table is unlocked. It returns how many.
func (t *Table) finish(o *Owner, b *Batch, act func()) (woken int) {
	t.mu.Lock()
	t.waking, t.wakes = true, b.wakes[:0]
	if !o.dead {
		act()
		b.clear()
	}
	t.settle()
	b.Polls = len(t.polls) + len(t.retries)
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
	t.held.Add(1)
	o.held.Add(1)
	k.owner, k.acquired, k.elsewhere = o, at, false
	if k.since == 0 {
		k.since = at
	}
}

// Reconcile acts on the failure of b with err, of which o is not lost. A
// statement that fails half-way keeps what it had got: holds reports what o
// holds now. A key that it should have given back is queued again, and the source
// is not woken for that.
func (t *Table) Reconcile(o *Owner, b *Batch, at time.Duration, holds func(ID, Mode) bool, err error) {
	t.finish(o, b, func() {
		for _, k := range b.Releases {
			if holds(k.id, k.mode) {
				t.turn(k, releasing)
				o.releases = append(o.releases, k)
			} else {
				t.freed(k, nil)
			}
		}
		t.fails(o, b, at, holds, err)
	})
}

// fails decides with err the requests for which o has tried keys in b. What it
// holds nevertheless goes to those that want it.
func (t *Table) fails(o *Owner, b *Batch, at time.Duration, holds func(ID, Mode) bool, err error) {
	regain := func(keys []*State) {
		for _, k := range keys {
			if holds(k.id, k.mode) {
				t.keep(k, o, at)
				t.give(k)
			} else {
				t.turn(k, idle)
			}
		}
	}
	for i := range b.Looks {
		l := &b.Looks[i]
		l.group.looking = false
		regain(l.Keys)
		t.refuse(l.group, err)
	}
	for i := range b.Stacks {
		for _, keys := range b.Stacks[i].Levels {
			regain(keys)
		}
		t.denyStack(b.Stacks[i].request, err)
	}
}

// Lose notes, once, that o is lost, with all that it held, and with b, which may
// be under way. The calls that b has tried for fail with err. It returns the
// holds that have ended, for the source to announce.
func (t *Table) Lose(o *Owner, b *Batch, err error) (ends Ends) {
	t.mu.Lock()
	defer t.unlock()
	o.dead = true
	for _, k := range t.keys {
		if k.owner == o {
			ends = k.endAll(ends, Lost)
			t.freed(k, ErrLost)
		}
	}
	t.fails(o, b, 0, func(ID, Mode) bool { return false }, err)
	return ends
}

// Expire fails, with the error of why, the requests that only try and the
// Releases that came at this time or before. It returns when the oldest of the
// others came, if there are any.
func (t *Table) Expire(came time.Duration, why func() error) (oldest time.Duration, some bool) {
	t.mu.Lock()
	defer t.unlock()
	t.arrived = 0
	for a := t.arrivals.first; a != nil; a = t.arrivals.first {
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
		for _, r := range t.stacks {
			if !r.decided {
				t.retries[r] = struct{}{}
			}
		}
		t.stacks = nil
	}
}

// Close ends all requests, and later ones, with err, and all holds. It returns
// those that have ended, for the caller to announce.
func (t *Table) Close(err error) (ends Ends) {
	t.mu.Lock()
	defer t.unlock()
	t.arrivals.each(func(r *Request) { t.decide(r, nil, err) })
	for r := range t.sets {
		t.decide(r, nil, err)
	}
	t.closed = err
	for _, k := range t.keys {
		ends = k.endAll(ends, Closed)
		for _, g := range k.inGroups() {
			g.line.each(func(r *Request) { t.decide(r, nil, err) })
		}
	}
	return ends
}

// AnswerAll completes all Releases that wait, with err. The table is closed.
func (t *Table) AnswerAll(err error) {
	t.mu.Lock()
	defer t.unlock()
	for _, k := range t.keys {
		t.answer(k, err)
	}
}
