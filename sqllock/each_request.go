package sqllock

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// placeEachLocked is placeLocked for a request for one key of each group.
func (t *keyTable) placeEachLocked(r *request) {
	for g := range r.each.groups {
		group := &r.each.groups[g]
		learnt := &t.narrowWidth
		if len(group.keys) > narrowGroup {
			group.pool = t.poolLocked(group.keys)
			group.first = group.pool.next % len(group.keys)
			learnt = &group.pool.width
		}
		if !group.bounded() {
			group.width, group.learnt = *learnt, learnt
		}
		if !t.addCandidatesLocked(r, g) {
			t.denyGroupLocked(r, g)
		}
		if r.decided {
			return
		}
	}
	t.sendEachLocked(r)
}

// denyGroupLocked decides r, because group g is full.
func (t *keyTable) denyGroupLocked(r *request, g int) {
	if !r.decided {
		t.decideLocked(r, nil, &GroupError{Group: g})
	}
}

// addCandidatesLocked reserves a key for group g, or adds candidates. It
// reports whether the group has a key or a candidate, or r is decided.
//
// A key of the group is no candidate if this process holds it or waits for it.
// Keys for which something is under way are candidates only when there are no
// others.
func (t *keyTable) addCandidatesLocked(r *request, g int) bool {
	group := &r.each.groups[g]
	fresh := 0
	if !group.whole && t.reuseLocked(r, g) {
		fresh = group.width // it is free, unless another process has taken it
	}
	for !r.decided && group.reserved == nil && fresh < group.width && group.seen < len(group.keys) {
		place := group.first + group.seen
		if place >= len(group.keys) {
			place -= len(group.keys)
		}
		group.seen++
		if t.considerLocked(r, g, place, group.whole) {
			fresh++
		}
	}
	if group.open == 0 {
		t.considerAgainLocked(r, g, &group.later)
	}
	if group.open == 0 && r.parked && !group.again { // callers may have changed places meanwhile
		group.again = true
		t.considerAgainLocked(r, g, &group.held)
	}
	if group.pool != nil {
		group.pool.next = (group.first + group.seen) % len(group.keys) // the next caller begins behind these
	}
	group.width *= fewCandidates
	return group.open > 0 || group.reserved != nil || r.decided
}

// considerAgainLocked considers keys at places, a list of group g, until the
// group has as many candidates as it should have. It takes them off the list, so
// that no key is considered again and again.
func (t *keyTable) considerAgainLocked(r *request, g int, places *[]int) {
	n, at := len(*places), 0
	for group := &r.each.groups[g]; at < n && group.open < group.width && group.reserved == nil && !r.decided; at++ {
		t.considerLocked(r, g, (*places)[at], true)
	}
	*places = slices.Delete(*places, 0, at)
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

// considerLocked makes the key at this place a candidate of group g, or
// reserves it. It reports whether the key is a candidate. If something is under
// way for the key, it is one only if late is true.
func (t *keyTable) considerLocked(r *request, g, place int, late bool) bool {
	group := &r.each.groups[g]
	key := group.keys[place]
	k := t.keys.of(key.id())
	if k != nil {
		switch {
		case slices.Contains(k.waiters, r): // the same key again
			return false
		case k.phase == held, k.phase == reserved:
			// A request that has reserved a key must not wait for one that another
			// request has reserved: that one may wait for the first, and neither ends.
			group.held = append(group.held, place)
			return false
		case k.mayReserve(t, group, key):
			t.reserveLocked(r, g, place, k)
			return false
		}
		mustWait := k.mustWait(r)
		if k.phase != idle || mustWait {
			if err := t.source.away(k); err != nil {
				t.decideLocked(r, nil, err)
				return false
			}
		}
		switch {
		case mustWait:
			return false
		case !late: // callers keep out of each other's way
			group.later = append(group.later, place)
			return false
		}
	}
	r.keys, r.states, r.each.candidates = append(r.keys, key), append(r.states, nil), append(r.each.candidates, candidate{g, place})
	group.open++
	if k = t.lineUpLocked(r, len(r.keys)-1, k); r.each.claims() {
		k.claim(r)
	}
	return true
}

// returnReservedLocked passes the keys on that r, which is decided without
// success, has reserved.
func (t *keyTable) returnReservedLocked(r *request) {
	for g := range r.each.groups {
		k := r.each.groups[g].reserved
		if k == nil {
			continue
		}
		r.each.groups[g].reserved, k.reservedFor = nil, nil
		if len(k.waiters) > 0 {
			if first, key := k.waiters[0], k.firstKey(); t.mayHandOverLocked(k, first, key) {
				t.reacquiredLocked(k)
				t.grantLocked(k, first, key)
				t.denyTriesLocked(k, ErrHeld)
				continue
			}
		}
		t.releaseLocked(k)
	}
}

// sendEachLocked requests the candidates of r, if each group has a key or a
// candidate that can be requested now. If r has reserved all keys, it is
// granted.
func (t *keyTable) sendEachLocked(r *request) {
	switch {
	case r.decided || r.enqueued:
	case r.each.complete():
		t.grantEachLocked(r, now())
	case r.readyEach():
		t.source.takeGroup(r)
	}
}

// complete reports whether the request has reserved all keys.
func (e *eachRequest) complete() bool {
	return !slices.ContainsFunc(e.groups, func(g eachGroup) bool { return g.reserved == nil })
}

// readyEach reports whether each group of r has reserved a key, or has a
// candidate that no statement requests.
func (r *request) readyEach() bool {
	if r.each.inBatch || r.decided {
		return false
	}
	for g := range r.each.groups {
		if group := &r.each.groups[g]; group.reserved == nil && r.idleOf(g) < group.needs() {
			return false
		}
	}
	return true
}

// needs returns how many candidates must be idle before they are requested.
func (g *eachGroup) needs() int {
	if g.whole {
		return max(g.open, 1)
	}
	return 1
}

// candidateDeniedLocked notes that candidate i of r is denied. When a group has
// none left, it gets others, or r is decided.
func (t *keyTable) candidateDeniedLocked(r *request, i int) {
	g := r.each.candidates[i].group
	group := &r.each.groups[g]
	group.open--
	if group.open == 0 && group.learnt != nil {
		*group.learnt = min(2**group.learnt, fewCandidates)
	}
	if group.open == 0 && !t.addCandidatesLocked(r, g) {
		t.denyGroupLocked(r, g)
	}
	t.sendEachLocked(r)
}

// grantEachLocked gives r the keys that it has reserved, and those that the
// source has granted at this time.
func (t *keyTable) grantEachLocked(r *request, at time.Duration) {
	r.locks = make(Locks, len(r.each.groups))
	for g := range r.each.groups {
		group := &r.each.groups[g]
		k := group.won
		if group.reserved != nil {
			k = group.reserved
			group.reserved, k.reservedFor = nil, nil
			t.reacquiredLocked(k)
		} else {
			t.markHeldLocked(k, at)
		}
		r.locks[g] = t.newLockLocked(k, r, group.keys[group.place])
		k.pool, k.place = group.pool, group.place
		group.won = k
	}
	t.decideLocked(r, nil, nil)
	for g := range r.each.groups {
		if k := r.each.groups[g].won; len(k.waiters) > 0 {
			t.denyTriesLocked(k, ErrHeld)
		}
		r.each.groups[g].won = nil
	}
}

// wonLocked notes that the source has granted k to group g of r.
func (r *request) wonLocked(g int, k *keyState) {
	if width := r.each.groups[g].learnt; width != nil && *width > 1 {
		*width-- // until a call needs more again
	}
	r.each.groups[g].won = k
	r.each.groups[g].place = r.each.candidates[slices.Index(r.states, k)].place
}

// takenBeyondLocked returns how many keys beyond a group this process holds, and
// appends the others, about which the database must be asked, to ask. freed
// reports whether the statement under preparation releases a key.
func (t *keyTable) takenBeyondLocked(g *eachGroup, ask []dialect.Key, freed func(*keyState) bool) (held int, _ []dialect.Key) {
	for _, number := range g.beyond {
		key := ID(number).id()
		if k := t.keys.of(key); k == nil || k.phase == idle || k.phase == queued || k.phase == freeing && freed(k) {
			ask = append(ask, key)
		} else {
			held++
		}
	}
	return held, ask
}
