package postgres

import (
	"database/sql"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// wons returns the responses of b for its groups.
func wons(b dialect.Batch) (all []int) {
	for _, g := range b.Each {
		all = append(all, g.Won)
	}
	return all
}

// One key of each group is taken, or none. The statement probes keys beyond a
// group, and frees its probes. A model says what it does, for small requests in
// random states of the server.
func TestEachAgainstModel(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		a, b := connect(t, db), connect(t, db)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 150 {
			var elsewhere []dialect.Key
			held := map[dialect.Key]bool{}
			for id := range int64(40) {
				if rng.IntN(3) == 0 {
					elsewhere = append(elsewhere, big(id)...)
					held[big(id)[0]] = true
				}
			}
			exchange(t, b, dialect.Batch{Try: elsewhere})
			groups := randomGroups(rng)
			want, taken := modelOfEach(groups, held)
			got := exchange(t, a, dialect.Batch{Each: groups})
			if !reflect.DeepEqual(wons(got), want) {
				t.Fatalf("held elsewhere %v\ngroups %+v\nwon %v, want %v", elsewhere, groups, wons(got), want)
			}
			holds(t, a, taken)
			if left := exchange(t, b, dialect.Batch{Release: elsewhere}); len(left.NotHeld) > 0 {
				t.Fatalf("not held: %v", left.NotHeld)
			}
			exchange(t, a, dialect.Batch{Release: taken})
		}
	})
}

// randomGroups returns up to three requests of up to three groups of up to
// three keys. No key is in two places, except beyond a group.
func randomGroups(rng *rand.Rand) (groups []dialect.Group) {
	ids := rng.Perm(32)
	take := func(n int) (keys []dialect.Key) {
		for range n {
			keys = append(keys, big(int64(ids[0]))...)
			ids = ids[1:]
		}
		return keys
	}
	bounded, most := rng.IntN(2) == 0, 1+rng.IntN(2)
	for range 1 + rng.IntN(3) {
		for range 1 + rng.IntN(4) {
			g := dialect.Group{Keys: take(1 + rng.IntN(most))}
			if bounded && rng.IntN(2) == 0 {
				g.Held = rng.IntN(2)
				for id := range int64(rng.IntN(4)) {
					g.Beyond = append(g.Beyond, big(32+id)...)
				}
			}
			groups = append(groups, g)
		}
		groups[len(groups)-1].Last = true
	}
	return groups
}

// modelOfEach returns the responses for groups, and the keys that are taken.
func modelOfEach(groups []dialect.Group, held map[dialect.Key]bool) (won []int, taken []dialect.Key) {
	for request := range dialect.Requests(groups) {
		var mine []dialect.Key
		at := len(won)
		for _, g := range request {
			got, free := dialect.NoneFree, 0
			for i, k := range g.Keys {
				if held[k] {
					continue
				}
				if got < 0 {
					got = i
				}
				free++
			}
			lost := g.Held
			for _, k := range g.Beyond {
				if held[k] {
					lost++
				}
			}
			switch {
			case got >= 0 && free <= lost:
				got = dialect.OverLimit
			case got >= 0:
				mine = append(mine, g.Keys[got])
			}
			if won = append(won, got); got < 0 {
				break
			}
		}
		if won[len(won)-1] < 0 {
			for i := at; i < len(won)-1; i++ {
				won[i] = dialect.GivenUp
			}
			for len(won) < at+len(request) {
				won = append(won, dialect.GivenUp)
			}
			continue
		}
		taken = append(taken, mine...)
	}
	return won, taken
}
