package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Check(pgtest.Main(m)))
}

func open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

var settings = dialect.Settings{Lease: 10 * time.Second, StatementTimeout: 8 * time.Second, Proof: 2 * time.Second}

func connect(t testing.TB, db *sql.DB) dialect.Session {
	t.Helper()
	s, err := postgres.Dialect{}.Open(context.Background(), db, settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Destroy)
	return s
}

func exchange(t *testing.T, s dialect.Session, b dialect.Batch) dialect.Batch {
	t.Helper()
	if err := s.Exchange(&b); err != nil {
		t.Fatalf("Exchange: %v", err)
	}
	return b
}

func eachDriver(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, driver, pgtest.Database(t)))
		})
	}
}

func big(ids ...int64) []dialect.Key {
	var keys []dialect.Key
	for _, id := range ids {
		keys = append(keys, dialect.Key{Space: dialect.Bigint, ID: id})
	}
	return keys
}

// pairs returns keys of the two-integer space, each {n, -n}.
func pairs(ns ...int32) []dialect.Key {
	var keys []dialect.Key
	for _, n := range ns {
		keys = append(keys, dialect.Key{Space: dialect.TwoInts, ID: int64(n)<<32 | int64(uint32(-n))})
	}
	return keys
}

func TestExchange(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		a, b := connect(t, db), connect(t, db)

		// Everything at once, in one statement.
		got := exchange(t, a, dialect.Batch{
			Try: append(big(1, -2, 1<<62), pairs(5, -6)...),
			Any: [][]dialect.Key{big(10, 11, 12), big(13)},
		})
		if len(got.Busy) != 0 || !reflect.DeepEqual(got.Won, []int{0, 0}) {
			t.Fatalf("free keys: busy %v, won %v", got.Busy, got.Won)
		}
		got = exchange(t, b, dialect.Batch{
			Try: append(big(1, 3), pairs(5, 7)...),
			Any: [][]dialect.Key{big(10, 11, 12), big(13, 10), big(13, 14)},
		})
		if want := append(big(1), pairs(5)...); !reflect.DeepEqual(got.Busy, want) {
			t.Errorf("busy: %v, want %v", got.Busy, want)
		}
		if want := []int{1, -1, 1}; !reflect.DeepEqual(got.Won, want) {
			t.Errorf("won: %v, want %v", got.Won, want)
		}

		// What each session holds, as the server knows it.
		for s, want := range map[dialect.Session][]dialect.Key{
			a: append(big(1, -2, 1<<62, 10, 13), pairs(5, -6)...),
			b: append(big(3, 11, 14), pairs(7)...),
		} {
			held, err := s.Held()
			if err != nil {
				t.Fatal(err)
			}
			order := func(x, y dialect.Key) int {
				if x.Space != y.Space {
					return int(x.Space) - int(y.Space)
				}
				return int(min(max(x.ID>>1-y.ID>>1, -1), 1))
			}
			slices.SortFunc(held, order)
			slices.SortFunc(want, order)
			if !reflect.DeepEqual(held, want) {
				t.Errorf("held: %v, want %v", held, want)
			}
		}

		// Releases go first, so a key can be given back and taken at once.
		got = exchange(t, a, dialect.Batch{Release: append(big(1), pairs(5)...), Try: append(big(1), pairs(5)...)})
		if len(got.NotHeld)+len(got.Busy) != 0 {
			t.Errorf("release and try of one key: not held %v, busy %v", got.NotHeld, got.Busy)
		}
		got = exchange(t, a, dialect.Batch{Release: append(big(1), pairs(5)...)})
		if len(got.NotHeld) != 0 {
			t.Errorf("release after release and try: not held %v; the key had been taken twice", got.NotHeld)
		}
		// Keys that are not held are reported, one or many.
		for _, keys := range [][]dialect.Key{big(1), big(1, 77), pairs(5), pairs(5, 8)} {
			if got = exchange(t, a, dialect.Batch{Release: keys}); !reflect.DeepEqual(got.NotHeld, keys) {
				t.Errorf("release of %v, not held: %v", keys, got.NotHeld)
			}
		}
		// A single key has a statement of its own.
		if got = exchange(t, b, dialect.Batch{Try: big(-2)}); !reflect.DeepEqual(got.Busy, big(-2)) {
			t.Errorf("one held key: busy %v", got.Busy)
		}
		if got = exchange(t, b, dialect.Batch{Try: big(1)}); len(got.Busy) != 0 {
			t.Errorf("one free key: busy %v", got.Busy)
		}
		exchange(t, a, dialect.Batch{}) // a heartbeat
	})
}

// The server frees the locks of a silent session. Only the server can end it
// here: no engine sends heartbeats or closes the connection.
func TestServerEndsSilentSession(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		rival := connect(t, db)
		silent := holdBriefly(t, db, big(1))
		defer silent.Destroy()
		deadline := time.Now().Add(30 * time.Second)
		for len(exchange(t, rival, dialect.Batch{Try: big(1)}).Busy) > 0 {
			if time.Now().After(deadline) {
				t.Fatal("the key of a silent session is not free long after its lease")
			}
			time.Sleep(time.Millisecond)
		}
		var failure *dialect.Failure
		if err := silent.Exchange(&dialect.Batch{}); !errors.As(err, &failure) || failure.Kind != dialect.Gone {
			t.Errorf("Exchange after the lease: %v, want a Failure of Kind Gone", err)
		}
	})
}

// holdBriefly returns a session with a short lease that has taken keys. The
// lease is long enough for a busy machine to take them in time.
func holdBriefly(t *testing.T, db *sql.DB, keys []dialect.Key) dialect.Session {
	t.Helper()
	set := settings
	for set.Lease = 300 * time.Millisecond; ; set.Lease *= 2 {
		s, err := postgres.Dialect{}.Open(context.Background(), db, set)
		if err != nil {
			t.Fatal(err)
		}
		if err = s.Exchange(&dialect.Batch{Try: keys}); err == nil {
			return s
		}
		s.Destroy()
		if set.Lease > 30*time.Second {
			t.Fatalf("Exchange: %v", err)
		}
	}
}

func TestSocketIsFound(t *testing.T) {
	eachDriver(t, func(t *testing.T, db *sql.DB) {
		s := connect(t, db)
		if s.Socket() == nil {
			t.Fatal("the driver's socket was not found")
		}
		s.Abort()
		var failure *dialect.Failure
		if err := s.Exchange(&dialect.Batch{}); !errors.As(err, &failure) || failure.Kind != dialect.Gone {
			t.Errorf("Exchange after Abort: %v, want a Failure of Kind Gone", err)
		}
	})
}
