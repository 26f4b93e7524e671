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

// mayReserve reports whether the key of k, which this process is releasing, may
// pass to a request without the source. It may not if keys beyond the group
// count, since only the source knows them.
func (k *keyState) mayReserve(t *keyTable, group *eachGroup, key Key) bool {
	return k.phase == releasing && len(k.waiters) == 0 && k.mode == exclusive && !group.bounded() &&
		t.source.away(k) == nil && t.mayPassLocked(k, key)
}

// reserveLocked reserves the key of k for group g of r. The release of k, which
// has not been sent, is taken back.
func (t *keyTable) reserveLocked(r *request, g, place int, k *keyState) {
	t.replyLocked(k, nil)
	k.own.named(r.each.groups[g].keys[place])
	k.phase, k.reservedFor = reserved, r
	r.each.groups[g].reserved, r.each.groups[g].place = k, place
}
