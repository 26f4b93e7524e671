package faults

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMustRefuse(t *testing.T) {
	tests := []struct {
		name string
		err  error
		ok   bool
	}{
		{"stored", nil, false},
		{"fenced", refusal{sqllock.ErrFenced}, true},
		{"lost", refusal{sqllock.ErrLost}, true},
		{"refused for something else", refusal{sqllock.ErrUnavailable}, false},
		{"fenced, and the transaction went on", sqllock.ErrFenced, false},
		{"failed", errors.New("no connection"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := mustRefuse(tt.err); (err == nil) != tt.ok {
				t.Errorf("mustRefuse: %v, want ok %v", err, tt.ok)
			}
		})
	}
}

// After a later holder's write, the earlier one's is refused. The store returns
// what was stored.
func TestStore(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			ctx, dsn := t.Context(), pgtest.Database(t)
			v, err := openStore(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer v.db.Close()
			if err := v.createTables(ctx); err != nil {
				t.Fatal(err)
			}
			s, err := sqllock.Open(ctx, v.db)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			lock, err := s.TryLock(ctx, sqllock.ID(1))
			if err != nil {
				t.Fatal(err)
			}
			if err := v.write(ctx, lock, 7); err != nil {
				t.Errorf("a holder's write: %v", err)
			}
			// As a holder would that got the key on a later timeline.
			if _, err := v.db.ExecContext(ctx, "UPDATE latchkey_fence SET timeline = timeline + 1"); err != nil {
				t.Fatal(err)
			}
			if err := mustRefuse(v.write(ctx, lock, 8)); err != nil {
				t.Error(err)
			}
			rows, err := v.stored(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != 1 || rows[0].Key != 1 || rows[0].N != 1 || rows[0].Lock != 7 {
				t.Errorf("stored %+v, want the first write", rows)
			}
		})
	}
}
