package postgres

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A session does not accept a response of another server process.
func TestOtherProcessAnswers(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	opened, err := Dialect{}.Open(context.Background(), db, dialect.Settings{Lease: time.Minute, StatementTimeout: time.Minute, Proof: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Destroy()
	s := opened.(*session)
	s.pid++ // as if a pooler had moved it
	var failure *dialect.Failure
	if err := s.Exchange(&dialect.Batch{}); !errors.As(err, &failure) || failure.Kind != dialect.NotExclusive {
		t.Errorf("Exchange: %v, want a Failure of Kind NotExclusive", err)
	}
	if _, err := s.Held(); !errors.As(err, &failure) || failure.Kind != dialect.NotExclusive {
		t.Errorf("Held: %v, want a Failure of Kind NotExclusive", err)
	}
}

// Releases are carried out before tries: a key that is not held and is released
// and tried at once is reported as not held.
func TestReleasesAreCarriedOutFirst(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := Dialect{}.Open(context.Background(), db, dialect.Settings{Lease: time.Minute, StatementTimeout: time.Minute, Proof: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy()
	for _, keys := range [][]dialect.Key{{{Space: dialect.Bigint, ID: 1}, {Space: dialect.Bigint, ID: 2}}, {{Space: dialect.TwoInts, ID: 1}}} {
		b := &dialect.Batch{Release: keys, Try: keys}
		if err := s.Exchange(b); err != nil {
			t.Fatal(err)
		}
		if len(b.NotHeld) != len(keys) || len(b.Busy) != 0 {
			t.Errorf("not held %v, busy %v, of %v", b.NotHeld, b.Busy, keys)
		}
		held, err := s.Held()
		if err != nil {
			t.Fatal(err)
		}
		if len(held) == 0 {
			t.Errorf("of %v nothing is held: it was released after it had been taken", keys)
		}
	}
}
