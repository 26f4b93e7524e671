package sqllock

import "slices"

// Requests over a limit: keys beyond a group are held, and too few of the
// group's keys may be free.
//
// A request begins with a few candidates, like others. If a key of them is free
// and too many keys beyond are held, it widens: it lines up for all keys of the
// group, claims all its candidates, and requests them in one statement. That
// response decides it, and all requests like it that were there before the
// statement was sent. So a flood of rejections costs few statements.
//
// Invariant: the request that claims a key is the first to come of its waiters
// that claim keys. Such a request claims the candidates of all its groups. So it
// waits for earlier ones only, and no two wait for each other.

// widenLocked makes all keys of group g candidates. r claims them, and its other
// candidates.
func (t *keyTable) widenLocked(r *request, g int) {
	group := &r.each.groups[g]
	group.whole, group.width = true, len(group.keys)
	for _, k := range r.states {
		if k != nil {
			k.claim(r)
		}
	}
	t.considerAgainLocked(r, g, &group.later)
	t.addCandidatesLocked(r, g)
}

// overLimitLocked notes that group g of r was over its limit: of states, which
// the statement tried, too few were free. all tells whether these were all
// candidates.
func (t *keyTable) overLimitLocked(r *request, g int, states []*keyState, all bool) {
	group := &r.each.groups[g]
	if r.decided {
		return
	}
	tried := all && group.seen == len(group.keys) && len(group.later) == 0
	switch {
	case tried || group.whole:
		if tried {
			t.denyAlikeLocked(r, group, states)
		}
		t.denyGroupLocked(r, g)
	case states[0].claimed == nil, states[0].claimed == r: // else the response to the one that claims decides r, or it is sent again
		t.widenLocked(r, g)
	}
}

// denyAlikeLocked denies the group of r to other requests for one of the same
// keys. The statement was sent after they came, and has tried all of them.
func (t *keyTable) denyAlikeLocked(r *request, group *eachGroup, states []*keyState) {
	type denial struct {
		r *request
		g int
	}
	var alike []denial
	for _, k := range states {
		for _, other := range k.waiters {
			if other == r || other.each == nil || other.each.inBatch || other.number > k.upTo {
				continue
			}
			if g := other.groupOf(k); other.each.groups[g].like(group) {
				alike = append(alike, denial{other, g})
			}
		}
	}
	for _, d := range alike {
		t.denyGroupLocked(d.r, d.g)
	}
}

// like reports whether both groups have the same keys, and the same beyond.
func (g *eachGroup) like(other *eachGroup) bool {
	sameKey := func(a, b Key) bool { return a.number == b.number }
	return slices.Equal(g.beyond, other.beyond) && slices.EqualFunc(g.keys, other.keys, sameKey)
}
