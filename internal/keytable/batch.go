package keytable

import (
	"math"
	"math/rand/v2"
	"slices"
)

// A Batch is what one statement carries, in this order: releases, looks, stacks.
// Prepare fills it, the source notes the response in it, and Complete empties
// it. A source has one for each owner, and uses it again and again.
//
// Invariant: from Prepare to Complete each key to release is freeing, and each
// key to try is requested.
type Batch struct {
	Releases []*State
	Looks    []Look
	Stacks   []Stack

	// Starved reports, after Prepare, that requests are left for which Limits had
	// no grants.
	Starved bool

	// Polls is, after Complete or Reconcile, what Table.Polls returns.
	Polls int

	upTo   uint64   // the last request that came before the batch was prepared
	states []*State // memory for the keys of Looks and Stacks
	wakes  []chan struct{}
}

// A Look tries keys of a group, in their order, until it has got as many as
// requests want.
type Look struct {
	Keys []*State
	Want int
	Won  []int // response: the places in Keys of those that it has got, in order

	group *Group
	all   bool // Keys are all that may be tried
}

// A Stack tries to get one key of each of its levels, the first that is free. If
// a level has none, it keeps nothing.
type Stack struct {
	Levels [][]*State
	Won    []int // response, if it has got all: for each level the place of its key
	Failed int   // response: the level without a free key; -1: none

	request *Request
}

// Limits bound a batch.
type Limits struct {
	Keys   int   // keys that one statement carries
	Grants int   // keys that may be granted now
	Stack  int   // one stack may bring so many, if that is more than Grants
	Large  error // for a stack that is larger than Stack; nil: it counts as beyond Grants
	Beyond error // for other requests beyond Grants; nil: they stay queued
	Most   int   // keys that one request may ever want
	TooBig error // for a stack of more

	ReleasesOnly bool  // requests stay queued
	NoShared     error // for readers; nil: the database has them
}

// noLimits are those of a table without a source.
var noLimits = Limits{Keys: math.MaxInt, Grants: math.MaxInt, Most: math.MaxInt}

// Brings returns how many keys the batch may bring.
func (b *Batch) Brings() (n int) {
	for i := range b.Looks {
		n += b.Looks[i].Want
	}
	for i := range b.Stacks {
		n += len(b.Stacks[i].Levels)
	}
	return n
}

// clear empties b.
func (b *Batch) clear() {
	clear(b.Releases)
	clear(b.Looks)
	clear(b.Stacks)
	clear(b.states)
	b.Releases, b.Looks, b.Stacks, b.states = b.Releases[:0], b.Looks[:0], b.Stacks[:0], b.states[:0]
}

// Prepare fills b with what is queued: the releases of o, and requests if
// limits allow keys. It reports whether there is something to send.
func (t *Table) Prepare(o *Owner, limits Limits, b *Batch) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	some := t.prepare(o, limits, b)
	t.settle()
	return some
}

func (t *Table) prepare(o *Owner, limits Limits, b *Batch) bool {
	b.clear()
	b.upTo, b.Starved, t.arrived = t.calls, false, 0
	p := preparation{Table: t, Batch: b, Limits: limits, large: limits.Stack}
	p.releases(o)
	if !limits.ReleasesOnly {
		p.tryStacks() // first: they know which requests for their keys are older
		p.looks()
	}
	return len(b.Releases)+len(b.Looks)+len(b.Stacks) > 0
}

// A preparation fills a batch.
type preparation struct {
	*Table
	*Batch
	Limits     // what is left of them
	large  int // Limits.Stack
}

// releases takes the keys that o is to give back. One that was taken over since
// is not. It may have come to another owner.
func (p *preparation) releases(o *Owner) {
	n := 0
	for _, k := range o.releases {
		if p.Keys == 0 {
			break
		}
		n++
		if k.phase == releasing && k.owner == o {
			p.turn(k, freeing)
			p.Releases = append(p.Releases, k)
			p.Keys--
		}
	}
	o.releases = append(o.releases[:0], o.releases[n:]...)
}

// looks takes the groups that are wanted.
func (p *preparation) looks() {
	n := len(p.wanted)
	for i := range n {
		if p.Keys == 0 {
			n = i
			break
		}
		g := p.wanted[i]
		g.wanted = false
		p.touch(g)
		want := min(g.requests(), len(g.keys))
		if g.mode() == Shared {
			want = min(want, 1)
		}
		switch {
		case want == 0: // all have left
		case p.NoShared != nil && g.mode() == Shared:
			g.line.each(func(r *Request) {
				if r.Mode == Shared {
					p.decide(r, nil, p.NoShared)
				}
			})
		case p.Grants > 0:
			p.lookFor(g, min(want, p.Grants))
		case p.Beyond != nil:
			p.refuse(g, p.Beyond)
		default:
			p.Starved = true
			p.want(g)
		}
	}
	p.wanted = slices.Delete(p.wanted, 0, n)
}

// requests returns how many are in the line.
func (g *Group) requests() int { return g.tries + g.waits }

// refuse denies g for another reason than a holder. Those that wait go on.
func (t *Table) refuse(g *Group, err error) {
	g.why = err
	t.deny(g, err)
	if g.waits > 0 {
		t.poll(g, t.config.Now()+AwayFor)
	}
}

// A look of a group of more keys tries few at first, from a random one on, and
// those last that other processes held. If that is not enough, another one tries
// the rest. Fewer keys are tried in their order.
const narrow = 64

// lookFor adds a look for so many keys of g.
func (p *preparation) lookFor(g *Group, want int) {
	l := Look{group: g, Want: want, all: true}
	if g.ids == nil {
		if !p.mayTry(g, g.keys[0]) {
			return
		}
		l.Keys = g.keys
		p.try(g.keys[0], g.mode())
		p.add(l)
		return
	}
	from, most, start := len(p.states), p.Keys, 0
	if len(g.keys) > narrow {
		start = rand.IntN(len(g.keys)) //nolint:gosec // to keep processes out of each other's way
		if !g.wide {
			most = min(most, narrow+2*want)
		}
	}
	for k := range g.inOrder(start) {
		switch {
		case !p.mayTry(g, k):
		case len(p.states)-from == most:
			l.all = false
		default:
			p.states = append(p.states, k)
		}
	}
	if l.Keys = p.states[from:len(p.states):len(p.states)]; len(l.Keys) == 0 {
		return
	}
	for _, k := range l.Keys {
		p.try(k, Exclusive)
	}
	p.add(l)
}

// add adds a look.
func (p *preparation) add(l Look) {
	l.group.looking = true
	p.Looks = append(p.Looks, l)
	p.Keys -= len(l.Keys)
	p.Grants -= l.Want
}

// try notes that the batch tries k.
func (p *preparation) try(k *State, m Mode) {
	k.mode = m
	p.turn(k, requested)
}
