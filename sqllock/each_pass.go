package sqllock

import "math/rand/v2"

// Keys that this process releases pass to requests for one key of each of
// several groups.

// poolLocked returns the pool of a wide group, and forgets another one if there
// are too many.
func (t *keyTable) poolLocked(keys []Key) *keyPool {
	first := keys[0].number
	if p := t.pools[first]; p != nil {
		return p
	}
	for other := range t.pools {
		if len(t.pools) < maxPools {
			break
		}
		delete(t.pools, other)
	}
	p := &keyPool{next: rand.N(len(keys)), width: 1}
	if t.pools == nil {
		t.pools = make(map[int64]*keyPool)
	}
	t.pools[first] = p
	return p
}

// reuseLocked prefers the keys of group g that this process has released last:
// it reserves one, or makes one a candidate. It reports whether there is a
// candidate.
func (t *keyTable) reuseLocked(r *request, g int) bool {
	t.passLocked(r, g)
	group := &r.each.groups[g]
	if group.pool == nil {
		return false
	}
	for !r.decided && group.reserved == nil {
		place, ok := group.pool.freed.take()
		if !ok {
			break
		}
		if place < len(group.keys) && t.considerLocked(r, g, place, false) {
			return true
		}
	}
	return false
}

// passLocked reserves a key of group g that this process is releasing, if there
// is one. Then the request needs no candidates of the group.
func (t *keyTable) passLocked(r *request, g int) {
	group := &r.each.groups[g]
	if group.reserved != nil || group.bounded() {
		return
	}
	if group.pool == nil {
		for place := range group.keys {
			if t.passPlaceLocked(r, g, place) {
				return
			}
		}
		return
	}
	for {
		place, ok := group.pool.passing.take()
		if !ok || place < len(group.keys) && t.passPlaceLocked(r, g, place) {
			return
		}
	}
}

// passPlaceLocked reserves the key at this place of group g, if it may.
func (t *keyTable) passPlaceLocked(r *request, g, place int) bool {
	group := &r.each.groups[g]
	key := group.keys[place]
	k := t.keys.of(key.id())
	if k == nil || !k.mayReserve(t, group, key) {
		return false
	}
	t.reserveLocked(r, g, place, k)
	for i, c := range r.each.candidates {
		k := r.states[i]
		if c.group != g || k == nil {
			continue
		}
		k.drop(r)
		r.states[i] = nil
		r.open--
		group.open--
		if group.pool != nil && k.phase == idle {
			group.pool.freed.add(c.place)
		}
		t.continueLocked(k)
	}
	return true
}
