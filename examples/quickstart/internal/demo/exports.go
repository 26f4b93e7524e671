package demo

import (
	"cmp"
	"slices"
)

// overlaps returns the pairs of exports of one user that ran at the same time. It
// relies on no lock: it compares the times at which the instances worked, all by
// the clock of one machine.
func overlaps(exports []export) (pairs [][2]export) {
	sorted := slices.Clone(exports)
	slices.SortFunc(sorted, func(a, b export) int { return a.began.Compare(b.began) })
	last := map[string]export{} // of each user, the export that ends last so far
	for _, e := range sorted {
		before, ok := last[e.user]
		if ok && e.began.Before(before.ended) {
			pairs = append(pairs, [2]export{before, e})
		}
		if !ok || e.ended.After(before.ended) {
			last[e.user] = e
		}
	}
	return pairs
}

// changes counts how often a user's export ran on another instance than that
// user's export before.
func changes(exports []export) (n int) {
	sorted := slices.Clone(exports)
	slices.SortFunc(sorted, func(a, b export) int {
		return cmp.Or(cmp.Compare(a.user, b.user), a.began.Compare(b.began))
	})
	for i := 1; i < len(sorted); i++ {
		if sorted[i].user == sorted[i-1].user && sorted[i].instance != sorted[i-1].instance {
			n++
		}
	}
	return n
}
