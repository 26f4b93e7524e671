package postgres

import (
	"cmp"
	"database/sql"
	"reflect"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

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

// A batch of any shape is carried out, even if too many other shapes have been
// prepared and its own has no statement. It then uses the statement with all
// parts for keys and looks.
func TestEveryShapeIsCarriedOut(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		s := connect(t, db)
		parts := []func(b *dialect.Batch, i int64){
			func(b *dialect.Batch, i int64) { b.Try = append(b.Try, big(i)...) },
			func(b *dialect.Batch, i int64) { b.Try = append(b.Try, pairs(int32(i))...) },
			func(b *dialect.Batch, i int64) { b.Try = append(b.Try, big(i + 1)[0].Shared()) },
			func(b *dialect.Batch, i int64) { b.Try = append(b.Try, pairs(int32(i + 1))[0].Shared()) },
			func(b *dialect.Batch, i int64) { b.Looks = append(b.Looks, dialect.Look{Keys: big(i+2, i+3), Want: 1}) },
			func(b *dialect.Batch, i int64) {
				b.Stacks = append(b.Stacks, dialect.Stack{Levels: [][]dialect.Key{big(i + 4), pairs(int32(i + 4))}})
			},
			func(b *dialect.Batch, i int64) {
				b.Stacks = append(b.Stacks, dialect.Stack{Levels: [][]dialect.Key{big(i + 5), big(i + 6)}})
			},
			func(b *dialect.Batch, i int64) {
				b.Stacks = append(b.Stacks, dialect.Stack{Levels: [][]dialect.Key{big(i+7, i+8)}})
			},
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
			wrong := len(got.NotHeld)+len(got.Busy) > 0
			for _, l := range got.Looks {
				held = append(held, l.Keys[0])
				wrong = wrong || !slices.Equal(l.Won, []int{0})
			}
			for _, stack := range got.Stacks {
				wrong = wrong || stack.Failed >= 0
				for level, keys := range stack.Levels {
					held = append(held, keys[0])
					wrong = wrong || stack.Won[level] != 0
				}
			}
			if wrong {
				t.Fatalf("shape %b: %+v", shape, got)
			}
			holds(t, s, held)
		}
		const kinds = 4 // no stacks, or one of three parts that carry them
		if n := len(s.statements.prepared); n <= maxPrepared || n > maxPrepared+kinds {
			t.Errorf("%d statements are prepared, want more than %d, and %d more at most", n, maxPrepared, kinds)
		}
	})
}
