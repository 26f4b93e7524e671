package main

import (
	"cmp"
	"slices"
)

// overlaps finds pairs of exports of one user that ran at the same time. It
// trusts no lock: it goes by when the instances say that they worked, all by the
// clock of one machine.
func overlaps(exports []export) (pairs [][2]export) {
	sorted := slices.Clone(exports)
	slices.SortFunc(sorted, func(a, b export) int { return a.begin.Compare(b.begin) })
	last := map[string]export{} // of each user, the export that ends last so far
	for _, e := range sorted {
		before, ok := last[e.user]
		if ok && e.begin.Before(before.end) {
			pairs = append(pairs, [2]export{before, e})
		}
		if !ok || e.end.After(before.end) {
			last[e.user] = e
		}
	}
	return pairs
}

// changes counts how often a user's export ran on another instance than the one
// before it: the limit went from process to process.
func changes(exports []export) (n int) {
	sorted := slices.Clone(exports)
	slices.SortFunc(sorted, func(a, b export) int {
		return cmp.Or(cmp.Compare(a.user, b.user), a.begin.Compare(b.begin))
	})
	for i := 1; i < len(sorted); i++ {
		if sorted[i].user == sorted[i-1].user && sorted[i].instance != sorted[i-1].instance {
			n++
		}
	}
	return n
}
