package fleet

import (
	"slices"
	"time"
)

// A Work is something that an instance did between two moments of the machine's
// clock. No other instance may do the same for this key meanwhile.
type Work struct {
	Key      string
	Instance int
	From, To time.Time
}

// Overlaps counts the works that began while another of the same key went on. It
// relies on no lock: it compares the times alone.
func Overlaps(works []Work) (n int) {
	sorted := slices.SortedFunc(slices.Values(works), func(a, b Work) int { return a.From.Compare(b.From) })
	end := map[string]time.Time{} // of each key, the latest end so far
	for _, w := range sorted {
		if w.From.Before(end[w.Key]) {
			n++
		}
		if w.To.After(end[w.Key]) {
			end[w.Key] = w.To
		}
	}
	return n
}

// Changes counts how often a key's work was done by another instance than the
// work before.
func Changes(works []Work) (n int) {
	sorted := slices.SortedFunc(slices.Values(works), func(a, b Work) int { return a.From.Compare(b.From) })
	last := map[string]int{}
	for _, w := range sorted {
		if before := last[w.Key]; before != 0 && before != w.Instance {
			n++
		}
		last[w.Key] = w.Instance
	}
	return n
}
