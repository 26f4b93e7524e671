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
// parts.
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
		if n := len(s.statements.prepared); n != maxPrepared+1 {
			t.Errorf("%d statements are prepared, want %d", n, maxPrepared+1)
		}
	})
}
