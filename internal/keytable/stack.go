package keytable

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// placeStack decides r, for one key of each of its levels, from the table where
// that can be done. Otherwise the next batch tries it.
func (t *Table) placeStack(r *Request) {
	for _, g := range r.levels {
		g.stacks++
		t.touch(g)
	}
	full := slices.IndexFunc(r.levels, func(g *Group) bool { return !g.mayServe(r) })
	switch {
	case t.closed != nil:
		t.decide(r, nil, t.closed)
		return
	case r.Waits && t.away != nil:
		t.sets[r], t.retries[r] = struct{}{}, struct{}{}
		return
	case r.Waits:
		t.sets[r] = struct{}{}
	case full >= 0:
		t.decide(r, nil, &FullError{Level: full})
		return
	case t.away != nil:
		t.decide(r, nil, t.away)
		return
	default:
		t.arrive(&r.arrival)
	}
	t.stacks = append(t.stacks, r)
	t.queued()
}

// mayServe reports whether r may try a key of g, now or after what is under way.
func (g *Group) mayServe(r *Request) bool {
	return slices.ContainsFunc(g.keys, func(k *State) bool { return k.mayStack(r) || k.mayCome(r) })
}

// mayStack reports whether a stack may try k now. The stack has not seen k held
// since it came. It overtakes no request for k alone, and none that waits.
func (k *State) mayStack(r *Request) bool {
	return k.phase == idle && k.waits == 0 && k.seen < r.number && !k.promised(r)
}

// mayCome reports whether it is not known yet if r may try k.
func (k *State) mayCome(r *Request) bool { return k.phase.inTransit() || k.promised(r) }

// promised reports whether a request for k alone came before r.
func (k *State) promised(r *Request) bool {
	return k.own.tries > 0 && k.waits == 0 && k.own.line.first.request.number < r.number
}

// tryStacks takes the stacks that are queued. One that must wait for what is
// under way stays.
func (p *preparation) tryStacks() {
	p.stacks = slices.DeleteFunc(p.stacks, func(r *Request) bool { return r.decided || p.tryStack(r) })
}

// tryStack adds r to the batch, or decides it. It reports whether r leaves the
// queue.
func (p *preparation) tryStack(r *Request) bool {
	n := len(r.levels)
	switch {
	case n > p.Most:
		p.decide(r, nil, p.TooBig)
		return true
	case n > p.Keys:
		return false
	case n <= p.Grants:
	case n <= p.Stack:
		p.Stack = 0
	case p.Large != nil && n > p.large:
		p.denyStack(r, p.Large)
		return true
	case p.Beyond != nil:
		p.denyStack(r, p.Beyond)
		return true
	default:
		p.Starved = true
		return false
	}
	from, levels := len(p.states), make([][]*State, 0, n)
	p.attempts++
	for i, g := range r.levels {
		most := 1
		if r.wide {
			most = min(p.share(g, r), p.Keys-(len(p.states)-from)-(n-i-1))
		}
		keys := p.choose(g, r, most)
		if len(keys) == 0 {
			clear(p.states[from:])
			p.states = p.states[:from]
			if slices.ContainsFunc(g.keys, func(k *State) bool { return k.mayCome(r) }) {
				return false
			}
			p.denyStack(r, &FullError{Level: i})
			return true
		}
		levels = append(levels, keys)
	}
	p.Stacks = append(p.Stacks, Stack{Levels: levels, request: r})
	p.Keys -= len(p.states) - from
	p.Grants -= n
	for _, k := range p.states[from:] {
		p.try(k, Exclusive)
	}
	return true
}

// share returns how many keys of g are for r. The other stacks get the rest.
func (p *preparation) share(g *Group, r *Request) int {
	usable := 0
	for _, k := range g.keys {
		if k.mayStack(r) {
			usable++
		}
	}
	return (usable + g.stacks - 1) / g.stacks
}

// denyStack decides r with err, unless it has given up. If r waits, it is tried
// again by a Poll: after a pause, if other holders are not the reason.
func (t *Table) denyStack(r *Request, err error) {
	switch {
	case r.decided:
	case !r.Waits:
		t.decide(r, nil, err)
	default:
		r.why, r.due = nil, 0
		if !errors.Is(err, ErrHeld) {
			r.why, r.due = err, t.config.Now()+AwayFor
		}
		t.retries[r] = struct{}{}
	}
}

// retryStacks has the stacks that wait tried again, unless that has no chance.
func (t *Table) retryStacks() {
	if t.away != nil {
		return
	}
	t.calls++
	for r := range t.retries {
		if r.due == 0 || r.due <= t.config.Now() {
			delete(t.retries, r)
			r.number, r.wide = t.calls, false
			t.stacks = append(t.stacks, r)
			t.queued()
		}
	}
}

// choose returns up to n of the keys of g that r may try, and that no level
// before has. It prefers those that no other session held, if there are some
// among the first that it looks at.
func (p *preparation) choose(g *Group, r *Request, n int) []*State {
	from, start := len(p.states), rand.IntN(len(g.keys)) //nolint:gosec // to keep processes out of each other's way
	take := func(k *State) {
		k.attempt = p.attempts
		p.states = append(p.states, k)
	}
	var elsewhere []*State
	for i := 0; i < len(g.keys) && len(p.states)-from < n && len(elsewhere) < narrow+n; i++ {
		switch k := g.keys[(start+i)%len(g.keys)]; {
		case k.attempt == p.attempts || !k.mayStack(r):
		case k.elsewhere:
			elsewhere = append(elsewhere, k)
		default:
			take(k)
		}
	}
	for i := 0; i < len(elsewhere) && len(p.states)-from < n; i++ {
		take(elsewhere[i])
	}
	return p.states[from:len(p.states):len(p.states)]
}

// completeStack completes one stack of b. If the request has given up meanwhile,
// its keys are for others, or go back.
func (t *Table) completeStack(o *Owner, b *Batch, s *Stack, at time.Duration) {
	r := s.request
	for i, keys := range s.Levels {
		for j, k := range keys {
			switch {
			case s.Failed < 0 && j == s.Won[i]:
				t.keep(k, o, at)
				continue
			case i == s.Failed, s.Failed < 0 && j < s.Won[i]:
				k.denied(b.upTo, Exclusive)
			}
			t.turn(k, idle)
		}
	}
	switch {
	case s.Failed >= 0 && r.decided:
	case s.Failed >= 0:
		r.wide = true
		t.stacks = append(t.stacks, r)
		t.queued()
	case r.decided:
		for i, keys := range s.Levels {
			t.give(keys[s.Won[i]])
		}
	default:
		for i, keys := range s.Levels {
			r.holds = append(r.holds, t.newHold(keys[s.Won[i]], r))
		}
		t.decide(r, nil, nil)
	}
}
