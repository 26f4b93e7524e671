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
	if t.closed != nil {
		t.decide(r, nil, t.closed)
		return
	}
	if r.repeats() {
		t.decide(r, nil, errTwoLevels)
		return
	}
	for i, g := range r.levels {
		if !g.mayServe(r) {
			t.decide(r, nil, &FullError{Level: i})
			return
		}
	}
	if t.away != nil {
		t.decide(r, nil, t.away)
		return
	}
	t.arrive(&r.arrival)
	t.stacks = append(t.stacks, r)
	t.queued()
}

var errTwoLevels = errors.New("sqllock: a key is in two groups")

// repeats reports whether two levels of r have a key in common. It looks at each
// key but those of the largest level.
func (r *Request) repeats() bool {
	largest := 0
	for i, g := range r.levels {
		if len(g.keys) > len(r.levels[largest].keys) {
			largest = i
		}
	}
	for i, g := range r.levels {
		if i == largest {
			continue
		}
		for _, k := range g.keys {
			if k.stack == r.number || k.isIn(r.levels[largest]) {
				return true
			}
			k.stack = r.number
		}
	}
	return false
}

// isIn reports whether k is a key of g.
func (k *State) isIn(g *Group) bool { return g == &k.own || slices.Contains(k.groups, g) }

// mayServe reports whether r may try a key of g, now or after what is under way.
func (g *Group) mayServe(r *Request) bool {
	return slices.ContainsFunc(g.keys, func(k *State) bool { return k.mayStack(r, nil) || k.phase.inTransit() })
}

// mayStack reports whether a stack may try k now. It has not seen k held since
// it came, and overtakes no waiting request.
func (k *State) mayStack(r *Request, o *Owner) bool {
	if k.waits > 0 || k.seen >= r.number {
		return false
	}
	return k.phase == idle || o != nil && k.phase == freeing && k.owner == o && k.mode == Exclusive
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
		p.denyStack(r, p.TooBig)
		return true
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
	p.Stacks = extended(p.Stacks)
	from, s := len(p.states), &p.Stacks[len(p.Stacks)-1]
	*s = Stack{Levels: s.Levels[:0], Won: s.Won[:0], request: r}
	for i, g := range r.levels {
		room := p.Keys - (len(p.states) - from) - (n - i - 1)
		if room <= 0 {
			p.cut(from)
			return false
		}
		width := 1
		if r.wide {
			width = min(p.share(g, r), room)
		}
		keys := p.choose(g, r, width)
		if len(keys) == 0 {
			p.cut(from)
			if g.mayServe(r) {
				return false
			}
			p.denyStack(r, &FullError{Level: i})
			return true
		}
		s.Levels = append(s.Levels, keys)
	}
	p.Keys -= len(p.states) - from
	p.Grants -= n
	for _, keys := range s.Levels {
		for _, k := range keys {
			p.try(k, Exclusive)
		}
	}
	return true
}

// denyStack decides r with err, unless it has given up.
func (t *Table) denyStack(r *Request, err error) {
	if !r.decided {
		t.decide(r, nil, err)
	}
}

// share returns how many keys of g are for r, and leaves the others to other
// stacks. It is at least one.
func (p *preparation) share(g *Group, r *Request) int {
	usable := 0
	for _, k := range g.keys {
		if k.mayStack(r, p.owner) {
			usable++
		}
	}
	return max(1, (usable+g.stacks-1)/g.stacks)
}

// choose returns up to n of the keys of g that r may try.
func (p *preparation) choose(g *Group, r *Request, n int) []*State {
	from, start := len(p.states), rand.IntN(len(g.keys)) //nolint:gosec // to keep processes out of each other's way
	for i := range g.keys {
		if k := g.keys[(start+i)%len(g.keys)]; k.mayStack(r, p.owner) {
			if p.states = append(p.states, k); len(p.states)-from == n {
				break
			}
		}
	}
	return p.states[from:len(p.states):len(p.states)]
}

// cut takes the last stack off the batch again, with its keys.
func (p *preparation) cut(from int) {
	clear(p.states[from:])
	p.states = p.states[:from]
	last := len(p.Stacks) - 1
	p.Stacks[last].request = nil
	p.Stacks = p.Stacks[:last]
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
