package main

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A reign is a term of a candidate, for as long as its deeds show for certain: from the
// end of the first to the beginning of the last.
type reign struct {
	number, term int
	token        string
	first, last  int64 // nanoseconds
	deeds        int
}

// A chronicle is all reigns.
type chronicle struct {
	mu     sync.Mutex // protects reigns
	reigns []*reign
}

func (c *chronicle) add(r report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.reigns, func(known *reign) bool { return known.number == r.Number && known.term == r.Term })
	if i < 0 {
		i = len(c.reigns)
		c.reigns = append(c.reigns, &reign{number: r.Number, term: r.Term, token: r.Token, first: r.To, last: r.From})
	}
	known := c.reigns[i]
	known.first, known.last = min(known.first, r.To), max(known.last, r.From)
	known.deeds++
}

// after is the first reign that has gone on after a moment and is not of one candidate; nil
// if there is none yet.
func (c *chronicle) after(moment time.Time, not int) *reign {
	for _, r := range c.inOrder() {
		if r.number != not && r.last > moment.UnixNano() {
			return &r
		}
	}
	return nil
}

// inOrder is the reigns by their beginnings.
func (c *chronicle) inOrder() (all []reign) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.reigns {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b reign) int { return cmp.Compare(a.first, b.first) })
	return all
}

// overlaps counts the reigns that began before the one before had ended.
func overlaps(inOrder []reign) (n int) {
	var last int64
	for i, r := range inOrder {
		if i > 0 && r.first <= min(last, r.last) {
			n++
		}
		last = max(last, r.last)
	}
	return n
}

// tokensGrow reports whether each leader's token is greater than that of the one before.
func tokensGrow(inOrder []reign) bool {
	return slices.IsSortedFunc(inOrder, func(a, b reign) int { return cmp.Compare(a.token, b.token) })
}
