package sqllock

import "slices"

// What a request for one key of each of several groups knows.

// An eachRequest is what a request for one key of each of several groups has
// beyond others. table.mu protects it, and the request.
//
// The request lines up for a few keys of each group, its candidates, and not
// for all: a level of fifty in all is wanted by every caller at once. When the
// candidates of a group are denied it lines up for more of its keys. It is
// denied when none is left. So it has seen every key of the full group held.
//
// Invariant: until the request is decided, each group has a candidate, or has
// reserved a key that this process is releasing. Then it has neither.
type eachRequest struct {
	groups     []eachGroup
	candidates []candidate // beside request.states
	inBatch    bool        // a statement under way requests candidates of each group
	numbers    numberSet
}

// A candidate is which key of the request a state is of.
type candidate struct{ group, place int }

// An eachGroup is one group of such a request.
type eachGroup struct {
	keys    []Key
	beyond  []int64
	checked bool     // its keys were compared with those of other groups before
	pool    *keyPool // of a group of many keys; else nil
	learnt  *int     // with how many candidates its next caller begins; nil: a group with keys beyond, which learns nothing

	first int   // the place where it begins to choose candidates
	seen  int   // how many keys it has seen, from there on
	width int   // how many candidates to add next
	later []int // places of keys for which something is under way: candidates when there are no others
	held  []int // places of keys that this process held: they are looked at once more before the group is denied
	again bool  // they were
	open  int   // candidates
	whole bool  // all keys are candidates, and a statement requests them at once: see widenLocked

	reserved *keyState // the key that it has for the request
	place    int       // of that key, or of the one that was granted
	won      *keyState // while the request is granted: the key
}

// fewCandidates is how many candidates a group begins with at most. Their number
// grows by this factor whenever all of them are denied.
const fewCandidates = 4

// forget notes that the request has lost the key that it had reserved.
func (e *eachRequest) forget(k *keyState) {
	for g := range e.groups {
		if e.groups[g].reserved == k {
			e.groups[g].reserved = nil
		}
	}
}

// claims reports whether the request claims its candidates.
func (e *eachRequest) claims() bool {
	return slices.ContainsFunc(e.groups, func(g eachGroup) bool { return g.whole })
}

// bounded reports whether keys beyond the group count.
func (g *eachGroup) bounded() bool { return len(g.beyond) > 0 }

// idleOf returns how many candidates of group g no statement requests. Unless
// all must be idle, it stops at the first.
func (r *request) idleOf(g int) (n int) {
	for i, k := range r.states {
		if k != nil && r.each.candidates[i].group == g && k.idleFor(r) {
			n++
			if !r.each.groups[g].whole {
				break
			}
		}
	}
	return n
}

// A keyPool is what a table remembers of a wide group of TryEach: where its
// callers choose their candidates. It is a hint. Nothing is wrong if it is
// forgotten, or if groups with the same first key differ. table.mu protects it.
type keyPool struct {
	next    int    // where the next caller begins
	width   int    // how many candidates it begins with, up to fewCandidates: few while the first is mostly granted
	passing places // keys whose release is queued, unless they have changed since
	freed   places // keys that this process has released
}

const (
	maxPools  = 256 // groups that a table remembers
	maxPlaces = 512 // keys of each, in one list
)

// places are places of keys in a group, the last ones at the end.
type places []int

// add adds place.
func (p *places) add(place int) {
	if len(*p) == maxPlaces { // the oldest ones are forgotten
		*p = slices.Delete(*p, 0, maxPlaces/2)
	}
	*p = append(*p, place)
}

// take takes the last place off the list.
func (p *places) take() (place int, ok bool) {
	last := len(*p) - 1
	if last < 0 {
		return 0, false
	}
	place, *p = (*p)[last], (*p)[:last]
	return place, true
}
