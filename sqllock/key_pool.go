package sqllock

import "math/rand/v2"

// A keyPool is what a table remembers of a wide group of TryEach: where its
// callers choose their candidates. It is a hint. Nothing is wrong if it is
// forgotten, or if groups with the same first key differ. table.mu protects it.
type keyPool struct {
	next   int   // where the next caller begins
	recent []int // places of the keys that this process has released, the last ones at the end
}

const (
	maxPools  = 64   // groups that a table remembers
	maxRecent = 1024 // keys of each
)

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
	p := &keyPool{next: rand.N(len(keys))}
	if t.pools == nil {
		t.pools = make(map[int64]*keyPool)
	}
	t.pools[first] = p
	return p
}

// begin returns the place where a caller begins to choose among n keys.
func (p *keyPool) begin(n int) int {
	first := p.next % n
	p.next = (first + fewCandidates) % n
	return first
}

// released notes that the key at place is about to be free.
func (p *keyPool) released(place int) {
	if len(p.recent) < maxRecent {
		p.recent = append(p.recent, place)
	}
}

// reuseLocked prefers the keys of group g that this process has released last:
// it reserves one whose release has not been sent, or makes one a candidate. It
// returns the number of candidates.
func (t *keyTable) reuseLocked(r *request, g int) (fresh int) {
	group := &r.each.groups[g]
	p := group.pool
	if p == nil || group.bounded() {
		return 0
	}
	for len(p.recent) > 0 && !r.decided && group.reserved == nil && fresh == 0 {
		place := p.recent[len(p.recent)-1]
		p.recent = p.recent[:len(p.recent)-1]
		if place < len(group.keys) && t.considerLocked(r, g, place, false) {
			fresh++
		}
	}
	return fresh
}
