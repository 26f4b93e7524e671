package databases

import (
	"math/rand/v2"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// One key of each group of a request is taken, or none, in random states of the
// database. Keys beyond a group count, whoever holds them.
func TestEachGroup(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
		rng := rand.New(rand.NewPCG(3, 4))
		for range 60 {
			var elsewhere []dialect.Key
			busy := make(map[dialect.Key]bool)
			for id := range int64(24) {
				if rng.IntN(3) == 0 {
					elsewhere = append(elsewhere, big(id)...)
					busy[big(id)[0]] = true
				}
			}
			exchange(t, b, dialect.Batch{Try: elsewhere})
			ids := rng.Perm(20)
			var groups []dialect.Group
			for range 2 {
				for range 1 + rng.IntN(3) {
					g := dialect.Group{Held: rng.IntN(3) / 2}
					for range 1 + rng.IntN(3) {
						g.Keys, ids = append(g.Keys, big(int64(ids[0]))...), ids[1:]
					}
					for id := range int64(rng.IntN(4)) {
						g.Beyond = append(g.Beyond, big(20+id)...)
					}
					groups = append(groups, g)
				}
				groups[len(groups)-1].Last = true
			}
			got := exchange(t, a, dialect.Batch{Each: groups})
			var taken []dialect.Key
			for request := range dialect.Requests(got.Each) {
				taken = append(taken, compareRequest(t, request, busy)...)
			}
			if n := len(held(t, a)); n != len(taken) {
				t.Fatalf("%d keys are held, want %d", n, len(taken))
			}
			if left := exchange(t, a, dialect.Batch{Release: taken}); len(left.NotHeld) > 0 {
				t.Fatalf("not held: %v", left.NotHeld)
			}
			exchange(t, b, dialect.Batch{Release: elsewhere})
		}
	})
}

// compareRequest compares the responses for request with what they should be
// while the keys of busy are held. It returns the keys that are taken.
func compareRequest(t *testing.T, request []dialect.Group, busy map[dialect.Key]bool) (taken []dialect.Key) {
	t.Helper()
	for i, g := range request {
		want, free := dialect.NoneFree, 0
		for j, k := range g.Keys {
			if !busy[k] {
				free++
				if want < 0 {
					want = j
				}
			}
		}
		lost := g.Held
		for _, k := range g.Beyond {
			if busy[k] {
				lost++
			}
		}
		if want >= 0 && free <= lost {
			want = dialect.OverLimit
		}
		if want >= 0 {
			taken = append(taken, g.Keys[want])
			continue
		}
		if g.Won != want {
			t.Fatalf("group %d of %+v: won %d, want %d", i, request, g.Won, want)
		}
		for _, other := range request {
			if other.Won >= 0 {
				t.Fatalf("a key was kept: %+v", request)
			}
		}
		return nil
	}
	for i, g := range request {
		if g.Won < 0 || g.Keys[g.Won] != taken[i] {
			t.Fatalf("group %d of %+v: won %d", i, request, g.Won)
		}
	}
	return taken
}
