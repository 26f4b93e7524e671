package ratelimit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/histogram"
)

// Holds stay in order of start, also if some begin a moment late, and an id is
// known only while it has a hold.
func TestHoldsInOrder(t *testing.T) {
	const limit = 2
	hs := &holds{lengths: histogram.New(histogram.Seconds)}
	var open []*hold
	counts := make(map[int64]int)
	for range 2000 {
		if len(open) == 0 || rand.IntN(2) == 0 {
			h := &hold{start: time.Duration(rand.IntN(50)), id: int64(rand.IntN(20)), limit: limit}
			hs.add(h)
			open = append(open, h)
			counts[h.id]++
		} else {
			i := rand.IntN(len(open))
			h := open[i]
			open = slices.Delete(open, i, i+1)
			hs.remove(h, released, 1)
			if counts[h.id]--; counts[h.id] == 0 {
				delete(counts, h.id)
			}
		}
		checkHolds(t, hs, open)
		full := 0
		for _, n := range counts {
			if n >= limit {
				full++
			}
		}
		if len(hs.perID) != len(counts) || hs.full != full {
			t.Fatalf("%d ids are known and %d are full; want %d and %d", len(hs.perID), hs.full, len(counts), full)
		}
	}
}

// checkHolds checks the list, and those of the ids, in both directions.
func checkHolds(t *testing.T, hs *holds, open []*hold) {
	t.Helper()
	n, last := 0, (*hold)(nil)
	for h := hs.oldest; h != nil; h = h.next {
		if h.prev != last || last != nil && last.start > h.start {
			t.Fatal("the list is not in order of start")
		}
		last = h
		n++
	}
	for id, of := range hs.perID {
		for h, after := of.last, (*hold)(nil); h != nil || after == nil; h, after = h.before, h {
			if h == nil || h.id != id || h.after != after {
				t.Fatal("the list of an id is broken")
			}
			of.n--
		}
		if of.n != 0 {
			t.Fatalf("the list of an id lacks %d holds", of.n)
		}
	}
	if hs.newest != last || n != len(open) {
		t.Fatalf("the list has %d of %d holds, or does not end with the newest", n, len(open))
	}
}
