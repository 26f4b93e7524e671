package postgres

import (
	"cmp"
	"database/sql"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A model says what looks and stacks do, for small batches in random states of
// the server.
func TestLooksAndStacksAgainstModel(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		a, b := connect(t, db), connect(t, db)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 150 {
			var elsewhere []dialect.Key
			held := map[dialect.Key]bool{}
			for id := range int64(60) {
				if rng.IntN(3) == 0 {
					elsewhere = append(elsewhere, big(id)...)
					held[big(id)[0]] = true
				}
			}
			exchange(t, b, dialect.Batch{Try: elsewhere})
			batch := randomBatch(rng)
			want, taken := modelOf(batch, held)
			got := exchange(t, a, batch)
			for i := range got.Stacks {
				if got.Stacks[i].Failed >= 0 {
					got.Stacks[i].Won = nil
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("held elsewhere %v\ngot  %+v\nwant %+v", elsewhere, got, want)
			}
			holds(t, a, taken)
			if left := exchange(t, b, dialect.Batch{Release: elsewhere}); left.NotHeld {
				t.Fatal("a key elsewhere is not held")
			}
			exchange(t, a, dialect.Batch{Release: taken})
		}
	})
}

// randomBatch returns up to three looks and up to three stacks. No key is in two
// places.
func randomBatch(rng *rand.Rand) (b dialect.Batch) {
	ids := rng.Perm(60)
	take := func(n int) (keys []dialect.Key) {
		for range n {
			keys = append(keys, big(int64(ids[0]))...)
			ids = ids[1:]
		}
		return keys
	}
	for range rng.IntN(4) {
		b.Looks = append(b.Looks, dialect.Look{Keys: take(1 + rng.IntN(4)), Want: 1 + rng.IntN(3)})
	}
	for range rng.IntN(4) {
		var s dialect.Stack
		levels, most := 1+rng.IntN(6), 1+rng.IntN(2)
		for range levels {
			s.Levels = append(s.Levels, take(1+rng.IntN(most)))
		}
		b.Stacks = append(b.Stacks, s)
	}
	return b
}

// modelOf returns b with its responses, and the keys that are taken.
func modelOf(b dialect.Batch, held map[dialect.Key]bool) (want dialect.Batch, taken []dialect.Key) {
	for _, l := range b.Looks {
		for i, k := range l.Keys {
			if !held[k] && len(l.Won) < l.Want {
				l.Won, taken = append(l.Won, i), append(taken, k)
			}
		}
		want.Looks = append(want.Looks, l)
	}
	for _, s := range b.Stacks {
		var mine []dialect.Key
		s.Failed = -1
		for level, keys := range s.Levels {
			won := -1
			for i, k := range keys {
				if won < 0 && !held[k] {
					won = i
				}
			}
			if won < 0 {
				s.Failed, s.Won, mine = level, nil, nil
				break
			}
			s.Won, mine = append(s.Won, won), append(mine, keys[won])
		}
		want.Stacks, taken = append(want.Stacks, s), append(taken, mine...)
	}
	return want, taken
}

func holds(t *testing.T, s dialect.Session, want []dialect.Key) {
	t.Helper()
	got, err := s.Held()
	must(t, err)
	order := func(x, y dialect.Key) int { return cmp.Or(cmp.Compare(x.Space, y.Space), cmp.Compare(x.ID, y.ID)) }
	slices.SortFunc(got, order)
	want = slices.Clone(want)
	slices.SortFunc(want, order)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("held: %v, want %v", got, want)
	}
}
