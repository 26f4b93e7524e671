package postgres

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A form beyond the bound uses the statement with all parts. No other statement
// is prepared.
func TestNoMoreThanMaxPrepared(t *testing.T) {
	t.Parallel()
	s := opened(t, "pgx", pgtest.Database(t))
	kinds := []dialect.Key{{Space: dialect.Bigint, ID: 1}, {Space: dialect.TwoInts, ID: 1}, dialect.Key{Space: dialect.Bigint, ID: 2}.Shared(), dialect.Key{Space: dialect.TwoInts, ID: 2}.Shared()}
	var held []dialect.Key
	for shape := range 1 << (2 * len(kinds)) {
		b := dialect.Batch{Release: held}
		held = nil
		for i, k := range kinds {
			if shape>>i&1 == 1 {
				b.Try = append(b.Try, k)
				held = append(held, k)
			}
		}
		if shape>>len(kinds)&1 == 1 {
			b.Any = [][]dialect.Key{{{Space: dialect.Bigint, ID: 5}}}
			held = append(held, dialect.Key{Space: dialect.Bigint, ID: 5})
		}
		if err := s.Exchange(&b); err != nil || len(b.NotHeld)+len(b.Busy) > 0 {
			t.Fatalf("shape %b: %v, not held %v, busy %v", shape, err, b.NotHeld, b.Busy)
		}
	}
	if n := len(s.statements.prepared); n != maxPrepared+1 {
		t.Errorf("%d statements are prepared, want %d", n, maxPrepared+1)
	}
}
