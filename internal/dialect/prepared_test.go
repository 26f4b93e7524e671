package dialect

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A form beyond the bound gets the statement with all parts, and no other is prepared.
func TestNoMoreThanMaxPrepared(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := PostgreSQL{}.Open(context.Background(), db, Settings{Lease: time.Minute, StatementTimeout: time.Minute, Proof: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy()
	kinds := []Key{{Bigint, 1}, {TwoInts, 1}, Key{Bigint, 2}.Shared(), Key{TwoInts, 2}.Shared()}
	var held []Key
	for shape := range 1 << (2 * len(kinds)) {
		b := Batch{Release: held}
		held = nil
		for i, k := range kinds {
			if shape>>i&1 == 1 {
				b.Try = append(b.Try, k)
				held = append(held, k)
			}
		}
		if shape>>len(kinds)&1 == 1 {
			b.Any = [][]Key{{{Bigint, 5}}}
			held = append(held, Key{Bigint, 5})
		}
		if err := s.Exchange(&b); err != nil || len(b.NotHeld)+len(b.Busy) > 0 {
			t.Fatalf("shape %b: %v, not held %v, busy %v", shape, err, b.NotHeld, b.Busy)
		}
	}
	if n := len(s.(*postgresSession).statements.prepared); n != maxPrepared+1 {
		t.Errorf("%d statements are prepared, want %d", n, maxPrepared+1)
	}
}
