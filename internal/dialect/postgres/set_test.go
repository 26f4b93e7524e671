package postgres_test

import (
	"cmp"
	"database/sql"
	"reflect"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A set is taken as a whole or not at all. The same statement gives back a set
// that is not complete.
func TestSets(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		a, b := connect(t, db), connect(t, db)
		mixed := append(big(-9, 8), pairs(-7, 6)...)
		got := exchange(t, a, dialect.Batch{All: [][]dialect.Key{mixed, big(1), {}}})
		if !reflect.DeepEqual(got.Missing, []int{-1, -1, -1}) {
			t.Fatalf("free sets: missing %v", got.Missing)
		}
		got = exchange(t, b, dialect.Batch{All: [][]dialect.Key{
			append(big(2, 3), pairs(6, 9)...), append(pairs(4, 5), big(8)...), mixed, append(big(10, 11), pairs(12)...), big(13, 1),
		}})
		if want := []int{2, 2, 0, -1, 1}; !reflect.DeepEqual(got.Missing, want) {
			t.Errorf("missing %v, want %v", got.Missing, want)
		}
		holds(t, a, append(big(1), mixed...))
		holds(t, b, append(big(10, 11), pairs(12)...))
		got = exchange(t, a, dialect.Batch{Release: append(big(1), mixed...), All: [][]dialect.Key{append(big(1), mixed...)}})
		if len(got.NotHeld) != 0 || !reflect.DeepEqual(got.Missing, []int{-1}) {
			t.Errorf("not held %v, missing %v", got.NotHeld, got.Missing)
		}
	})
}

// Shared locks exclude exclusive locks and nothing else, in both spaces.
func TestReaders(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		a, b := connect(t, db), connect(t, db)
		for _, keys := range [][]dialect.Key{big(1), big(2, -3), pairs(4), append(big(5), pairs(6)...)} {
			readers := make([]dialect.Key, len(keys))
			for i, k := range keys {
				readers[i] = k.Shared()
			}
			for _, s := range []dialect.Session{a, b} {
				if got := exchange(t, s, dialect.Batch{Try: readers}); len(got.Busy) > 0 {
					t.Errorf("readers' locks are busy: %v", got.Busy)
				}
			}
			holds(t, b, readers)
			exchange(t, a, dialect.Batch{Release: readers})
			if got := exchange(t, a, dialect.Batch{Try: keys}); !reflect.DeepEqual(got.Busy, keys) {
				t.Errorf("busy beside a reader: %v, want %v", got.Busy, keys)
			}
			if got := exchange(t, b, dialect.Batch{Release: keys}); !reflect.DeepEqual(got.NotHeld, keys) {
				t.Errorf("a reader's lock was given back as an exclusive one: not held %v", got.NotHeld)
			}
			exchange(t, b, dialect.Batch{Release: readers})
			exchange(t, a, dialect.Batch{Try: keys})
			if got := exchange(t, b, dialect.Batch{Try: readers}); !reflect.DeepEqual(got.Busy, readers) {
				t.Errorf("busy beside a writer: %v, want %v", got.Busy, readers)
			}
			exchange(t, a, dialect.Batch{Release: keys})
		}
	})
}

func holds(t *testing.T, s dialect.Session, want []dialect.Key) {
	t.Helper()
	got, err := s.Held()
	if err != nil {
		t.Fatal(err)
	}
	order := func(x, y dialect.Key) int { return cmp.Or(cmp.Compare(x.Space, y.Space), cmp.Compare(x.ID, y.ID)) }
	slices.SortFunc(got, order)
	want = slices.Clone(want)
	slices.SortFunc(want, order)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("held: %v, want %v", got, want)
	}
}

// A batch of any shape is carried out, even if too many other shapes have been
// prepared and its own has no statement.
func TestEveryShapeIsCarriedOut(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		s := connect(t, db)
		parts := []func(b *dialect.Batch, i int64){
			func(b *dialect.Batch, i int64) { b.Try = append(b.Try, big(i)...) },
			func(b *dialect.Batch, i int64) { b.Try = append(b.Try, pairs(int32(i))...) },
			func(b *dialect.Batch, i int64) { b.Try = append(b.Try, big(i + 1)[0].Shared()) },
			func(b *dialect.Batch, i int64) { b.Try = append(b.Try, pairs(int32(i + 1))[0].Shared()) },
			func(b *dialect.Batch, i int64) { b.Any = append(b.Any, big(i+2, i+3)) },
			func(b *dialect.Batch, i int64) { b.All = append(b.All, append(big(i+4), pairs(int32(i+4))...)) },
		}
		var held []dialect.Key
		for shape := range 1 << len(parts) {
			var b dialect.Batch
			for n, part := range parts {
				if shape>>n&1 == 1 {
					part(&b, int64(10*shape))
				}
			}
			b.Release = held
			got := exchange(t, s, b)
			held = slices.Clone(b.Try)
			for _, g := range b.Any {
				held = append(held, g[0])
			}
			for _, set := range b.All {
				held = append(held, set...)
			}
			if len(got.NotHeld)+len(got.Busy) > 0 || slices.ContainsFunc(got.Won, func(n int) bool { return n != 0 }) || slices.ContainsFunc(got.Missing, func(n int) bool { return n >= 0 }) {
				t.Fatalf("shape %b: not held %v, busy %v, won %v, missing %v", shape, got.NotHeld, got.Busy, got.Won, got.Missing)
			}
			holds(t, s, held)
		}
	})
}
