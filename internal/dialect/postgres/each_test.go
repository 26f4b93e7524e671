package postgres_test

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
// group, and frees its probes.
func TestEach(t *testing.T) {
	const free, over, up = dialect.NoneFree, dialect.OverLimit, dialect.GivenUp
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		a, b := connect(t, db), connect(t, db)
		got := exchange(t, a, dialect.Batch{Try: big(90), Each: []dialect.Group{
			{Keys: big(1, 2)}, {Keys: big(3)}, {Keys: big(-4, 5), Last: true},
			{Keys: big(6), Last: true},
			{Keys: big(7, 8, 9), Beyond: big(10, 11), Last: true},
		}})
		if want := []int{0, 0, 0, 0, 0}; !reflect.DeepEqual(wons(got), want) {
			t.Fatalf("won %v, want %v", wons(got), want)
		}
		holds(t, a, big(90, 1, 3, -4, 6, 7))
		got = exchange(t, b, dialect.Batch{Each: []dialect.Group{
			{Keys: big(1, 2)}, {Keys: big(21), Last: true}, // the second key
			{Keys: big(22)}, {Keys: big(3)}, {Keys: big(23), Last: true}, // the second group is full
			{Keys: big(6)}, {Keys: big(24), Last: true}, // the first group is full
			{Keys: big(7, 8), Beyond: big(25), Last: true},       // none beyond is held
			{Keys: big(30, 31), Beyond: big(90, 26), Last: true}, // one, and two are free
			{Keys: big(32)}, {Keys: big(33), Beyond: big(-4, 34), Last: true}, // one, and one is free
			{Keys: big(35, 36), Held: 1, Last: true},
			{Keys: big(37, 38), Held: 1, Beyond: big(90, 39), Last: true},
		}})
		want := []int{1, 0, up, free, up, free, up, 1, 0, up, over, 0, over}
		if !reflect.DeepEqual(wons(got), want) {
			t.Errorf("won %v, want %v", wons(got), want)
		}
		holds(t, b, big(2, 21, 8, 30, 35))
		holds(t, a, big(90, 1, 3, -4, 6, 7)) // the probes are gone: they were shared
		got = exchange(t, a, dialect.Batch{Release: big(90, 1), Each: []dialect.Group{
			{Keys: big(1)}, {Keys: big(22, 25), Last: true}, {Keys: big(26, 31, 33, 34), Last: true},
		}})
		if want := []int{0, 0, 0}; len(got.NotHeld) > 0 || !reflect.DeepEqual(wons(got), want) {
			t.Errorf("not held %v, won %v, want %v", got.NotHeld, wons(got), want)
		}
	})
}

// TestEachAgainstModel compares the statement with a model, for small requests
// in random states of the server.
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
