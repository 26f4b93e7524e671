package sqllock

import "slices"

// Requests over a limit: keys beyond a group are held, and too few of the
// group's keys may be free.
//
// A request begins with a few candidates, like others. If a key of them is free
// and too many keys beyond are held, it widens: it lines up for all keys of the
// group, claims them, and requests them in one statement. That response decides
// it, and all requests like it that were there before the statement was sent.
// So a flood of rejections costs few statements.
//
// Invariant: the request that claims a key is the first to come of its waiters
// that claim all keys of a group. So a request that claims keys waits for
// earlier ones only, and no two wait for each other.

// claim claims k for r, which waits for it, unless an earlier request has.
func (k *keyState) claim(r *request) {
	if k.claimed == nil || k.claimed.number > r.number {
		k.claimed = r
	}
}

// passClaim passes the claim of a request that waits for k no more.
func (k *keyState) passClaim() {
	k.claimed = nil
	for _, r := range k.waiters {
		if r.each != nil && r.each.groups[r.groupOf(k)].whole {
			k.claim(r)
		}
	}
}

// groupOf returns the group of r of which k is a candidate.
func (r *request) groupOf(k *keyState) int { return r.each.candidates[slices.Index(r.states, k)].group }

// idleFor reports whether r may request k now, as one of its candidates.
func (k *keyState) idleFor(r *request) bool {
	return k.phase == idle && !k.polling && (k.claimed == nil || k.claimed == r)
}

// widenLocked makes all keys of group g candidates, and claims them.
func (t *keyTable) widenLocked(r *request, g int) {
	group := &r.each.groups[g]
	group.whole, group.width = true, len(group.keys)
	for i, k := range r.states {
		if k != nil && r.each.candidates[i].group == g {
			k.claim(r)
		}
	}
	t.considerAgainLocked(r, g, &group.later)
	t.addCandidatesLocked(r, g)
}

// overLimitLocked notes that a part was over its limit: of the keys that the
// statement tried, too few were free.
func (t *keyTable) overLimitLocked(p eachPart) {
	r, group := p.request, &p.request.each.groups[p.group]
	if r.decided {
		return
	}
	tried := p.all && group.seen == len(group.keys) && len(group.later) == 0
	switch {
	case tried || group.whole:
		if tried {
			t.denyAlikeLocked(p)
		}
		t.denyGroupLocked(r, p.group)
	case p.states[0].claimed == nil: // else the response to the one that claims decides r, or it is sent again
		t.widenLocked(r, p.group)
	}
}

// denyAlikeLocked denies the group of p to other requests for one of the same
// keys. The statement was sent after they came, and has tried all of them.
func (t *keyTable) denyAlikeLocked(p eachPart) {
	type denial struct {
		r *request
		g int
	}
	var alike []denial
	group := &p.request.each.groups[p.group]
	for _, k := range p.states {
		for _, r := range k.waiters {
			if r == p.request || r.each == nil || r.each.inBatch || r.number > k.upTo {
				continue
			}
			g := r.groupOf(k)
			if other := &r.each.groups[g]; other.like(group) {
				alike = append(alike, denial{r, g})
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
