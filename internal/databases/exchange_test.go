package databases

import (
	"cmp"
	"context"
	"database/sql"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/choose"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

var settings = dialect.Settings{Lease: time.Hour, StatementTimeout: time.Minute, Proof: time.Minute}

// connect opens a session of the dialect of o.
func connect(t *testing.T, o lockertest.Orders) dialect.Session {
	t.Helper()
	return connectTo(t, pool(t, o), o.LeaseTable)
}

// connectTo opens a session on db, with a lease table if leaseTable is true.
func connectTo(t *testing.T, db *sql.DB, leaseTable bool) dialect.Session {
	t.Helper()
	d, err := choose.Dialect(context.Background(), db, leaseTable)
	must(t, err)
	s, err := d.Open(context.Background(), db, settings)
	must(t, err)
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

func big(ids ...int64) []dialect.Key { return keysOf(dialect.Bigint, ids) }

func pairs(ids ...int64) []dialect.Key { return keysOf(dialect.TwoInts, ids) }

func keysOf(space dialect.Space, ids []int64) (keys []dialect.Key) {
	for _, id := range ids {
		keys = append(keys, dialect.Key{Space: space, ID: id})
	}
	return keys
}

func held(t *testing.T, s dialect.Session) []dialect.Key {
	t.Helper()
	keys, err := s.Held()
	must(t, err)
	slices.SortFunc(keys, func(x, y dialect.Key) int { return cmp.Or(cmp.Compare(x.Space, y.Space), cmp.Compare(x.ID, y.ID)) })
	return keys
}

// One key of each group of a request is taken, or none. Keys beyond a group
// count, whoever holds them, and so do those that the caller holds.
func TestEachGroup(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
		exchange(t, b, dialect.Batch{Try: big(1, 4, 20)})
		for _, tt := range []struct {
			name    string
			request []dialect.Group
			won     []int
			held    []dialect.Key
		}{
			{"a free key of each", []dialect.Group{{Keys: big(1, 2)}, {Keys: big(3, 4)}}, []int{1, 0}, big(2, 3)},
			{"no free key of the second", []dialect.Group{{Keys: big(2)}, {Keys: big(1, 4)}}, []int{dialect.GivenUp, dialect.NoneFree}, nil},
			{"a key beyond is held", []dialect.Group{{Keys: big(5), Beyond: big(20)}}, []int{dialect.OverLimit}, nil},
			{"a key beyond is free", []dialect.Group{{Keys: big(5), Beyond: big(21)}}, []int{0}, big(5)},
			{"one is held already", []dialect.Group{{Keys: big(6), Held: 1}}, []int{dialect.OverLimit}, nil},
			{"one is held already, of two", []dialect.Group{{Keys: big(6, 7), Held: 1}}, []int{0}, big(6)},
		} {
			tt.request[len(tt.request)-1].Last = true
			got := exchange(t, a, dialect.Batch{Each: tt.request})
			for i, g := range got.Each {
				if g.Won != tt.won[i] && tt.won[i] != dialect.GivenUp || tt.held == nil && g.Won >= 0 {
					t.Errorf("%s: group %d: won %d, want %d", tt.name, i, g.Won, tt.won[i])
				}
			}
			if keys := held(t, a); !reflect.DeepEqual(keys, tt.held) {
				t.Errorf("%s: held %v, want %v", tt.name, keys, tt.held)
			}
			exchange(t, a, dialect.Batch{Release: tt.held})
		}
	})
}

// A set of keys is acquired as a whole or not at all. A set that is not complete
// leaves nothing.
func TestSets(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
		mixed := append(big(-9, 8), pairs(-7, 6)...)
		got := exchange(t, a, dialect.Batch{Try: big(20), Any: [][]dialect.Key{big(21)}, All: [][]dialect.Key{mixed, big(1)}})
		if len(got.Busy) > 0 || !reflect.DeepEqual(got.Missing, []int{-1, -1}) || !reflect.DeepEqual(got.Won, []int{0}) {
			t.Fatalf("free sets: missing %v, busy %v, won %v", got.Missing, got.Busy, got.Won)
		}
		got = exchange(t, b, dialect.Batch{Try: big(20, 22), All: [][]dialect.Key{
			append(big(2, 3), pairs(6, 9)...), mixed, append(big(10, 11), pairs(12)...),
		}})
		if want := []int{2, 0, -1}; !reflect.DeepEqual(got.Missing, want) || !reflect.DeepEqual(got.Busy, big(20)) {
			t.Errorf("missing %v, want %v; busy %v", got.Missing, want, got.Busy)
		}
		if got, want := held(t, b), append(big(10, 11, 22), pairs(12)...); !reflect.DeepEqual(got, want) {
			t.Errorf("held: %v, want %v", got, want)
		}
	}, advisoryKinds...)
}

func TestExchange(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
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
		if got, want := held(t, a), append(big(-2, 1, 10, 13, 1<<62), pairs(-6, 5)...); !reflect.DeepEqual(got, want) {
			t.Errorf("a holds %v, want %v", got, want)
		}
		if got, want := held(t, b), append(big(3, 11, 14), pairs(7)...); !reflect.DeepEqual(got, want) {
			t.Errorf("b holds %v, want %v", got, want)
		}
		// Releases come before the other parts of a batch.
		got = exchange(t, a, dialect.Batch{Release: append(big(1), pairs(5)...), Try: append(big(1), pairs(5)...)})
		if len(got.NotHeld)+len(got.Busy) != 0 {
			t.Errorf("release and try of one key: not held %v, busy %v", got.NotHeld, got.Busy)
		}
		if got = exchange(t, a, dialect.Batch{Release: append(big(1), pairs(5)...)}); len(got.NotHeld) != 0 {
			t.Errorf("release after release and try: not held %v", got.NotHeld)
		}
		for _, keys := range [][]dialect.Key{big(1), big(1, 77), pairs(5), pairs(5, 8), big(3)} { // 3 is b's
			if got = exchange(t, a, dialect.Batch{Release: keys}); !reflect.DeepEqual(got.NotHeld, keys) {
				t.Errorf("release of %v, not held: %v", keys, got.NotHeld)
			}
		}
		if got = exchange(t, b, dialect.Batch{Try: big(1)}); len(got.Busy) != 0 {
			t.Errorf("one free key: busy %v", got.Busy)
		}
		none := append(big(30, 31), pairs(32)...)
		if got = exchange(t, a, dialect.Batch{Release: none, Try: none}); !reflect.DeepEqual(got.NotHeld, none) || len(got.Busy) != 0 {
			t.Errorf("release and try of keys that are not held: not held %v, busy %v", got.NotHeld, got.Busy)
		}
		if got = exchange(t, a, dialect.Batch{Release: none}); len(got.NotHeld) != 0 {
			t.Errorf("they were released after they had been taken: not held %v", got.NotHeld)
		}
		exchange(t, a, dialect.Batch{}) // a heartbeat
		// Groups that contain the same keys get one each. An advisory lock of
		// PostgreSQL is granted to its own session again.
		got = exchange(t, a, dialect.Batch{Any: [][]dialect.Key{big(20, 21), big(20, 21), big(20, 21)}})
		slices.Sort(got.Won)
		if k.locks != "" && !reflect.DeepEqual(got.Won, []int{-1, 0, 1}) {
			t.Errorf("three groups of the same two keys: won %v", got.Won)
		}
		// The keys of a session that ends are free.
		a.Destroy()
		for _, key := range big(-2, 20) {
			lockertest.Eventually(t, "the keys of the other session are free", func() bool {
				return len(exchange(t, b, dialect.Batch{Try: []dialect.Key{key}}).Busy) == 0
			})
		}
	}, advisoryKinds...)
}

// A session whose socket was closed has ended, and each call says so.
func TestAbort(t *testing.T) {
	onEach(t, append(advisoryKinds, kind{"MariaDB", mariadb, namedLocks}), func(t *testing.T, _ kind, o lockertest.Orders) {
		for name, call := range map[string]func(dialect.Session) error{
			"Exchange": func(s dialect.Session) error { return s.Exchange(&dialect.Batch{}) },
			"Held":     func(s dialect.Session) error { _, err := s.Held(); return err },
		} {
			s := connect(t, o)
			exchange(t, s, dialect.Batch{Try: big(1)})
			s.Abort()
			if err := call(s); !isOfKind(err, dialect.Gone) {
				t.Errorf("%s: %v, want a Failure of Kind Gone", name, err)
			}
		}
	})
}

// A batch of thousands of keys is taken, rejected and released.
func TestThousandsOfKeys(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
		var ids []int64
		for i := range int64(4000) {
			ids = append(ids, i*7919-16_000_000)
		}
		if got := exchange(t, a, dialect.Batch{Try: big(ids...)}); len(got.Busy) != 0 {
			t.Fatalf("%d of 4000 free keys are busy", len(got.Busy))
		}
		if got := exchange(t, b, dialect.Batch{Try: big(ids...)}); len(got.Busy) != 4000 {
			t.Fatalf("%d of 4000 held keys are busy", len(got.Busy))
		}
		if n := len(held(t, a)); n != 4000 {
			t.Errorf("%d keys are held, want 4000", n)
		}
		if got := exchange(t, a, dialect.Batch{Release: big(ids...)}); len(got.NotHeld) != 0 {
			t.Errorf("%d of 4000 were not held", len(got.NotHeld))
		}
	})
}

// The database frees the keys of a silent session, but never before its lease
// ends. The session finds out.
func TestLongSilentSession(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		rival := connect(t, o)
		db := pool(t, o)
		d, err := choose.Dialect(t.Context(), db, o.LeaseTable)
		must(t, err)
		set := settings
		set.Lease = 5 * time.Second
		silent, err := d.Open(t.Context(), db, set)
		must(t, err)
		defer silent.Destroy()
		sent := time.Now()
		if got := exchange(t, silent, dialect.Batch{Try: big(1)}); len(got.Busy) > 0 {
			t.Fatal("a free key is busy")
		}
		lockertest.Eventually(t, "the key of a silent session is free", func() bool {
			return len(exchange(t, rival, dialect.Batch{Try: big(1)}).Busy) == 0
		})
		// The clocks of the database and of the test differ: their rates may
		// differ by a thousandth.
		if after := time.Since(sent); after < set.Lease-set.Lease/1000 {
			t.Errorf("the key was free %v after it was acquired, before the lease had ended", after)
		}
		if err := silent.Exchange(&dialect.Batch{}); !isOfKind(err, dialect.Gone) {
			t.Errorf("Exchange after the lease: %v, want a Failure of Kind Gone", err)
		}
	})
}

// Of two sessions with different secrets, one uses the namespace. A use ends
// with DropSecret or with the session.
func TestSecretChecks(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		a, b, third := connect(t, o), connect(t, o), connect(t, o)
		check, rival := dialect.SecretCheckOf("payouts", 1), dialect.SecretCheckOf("payouts", 2)
		uses := func(s dialect.Session, c dialect.SecretCheck) bool {
			conflict, err := s.UseSecret(c)
			if err != nil {
				t.Fatalf("UseSecret: %v", err)
			}
			return !conflict
		}
		for _, s := range []dialect.Session{a, a, b} {
			if !uses(s, check) {
				t.Error("the same check of two sessions is a conflict")
			}
		}
		if uses(third, rival) {
			t.Error("another fingerprint of a class in use makes no conflict")
		}
		if err := a.DropSecret(check); err != nil {
			t.Fatalf("DropSecret: %v", err)
		}
		if uses(third, rival) {
			t.Error("a check has ended although another session has it too")
		}
		b.Destroy()
		lockertest.Eventually(t, "the check ends with its session", func() bool { return uses(third, rival) })
	}, advisoryKinds...)
}

// Tokens rise from holder to holder, including tokens that come with a lock.
func TestTokens(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		sessions := []dialect.Session{connect(t, o), connect(t, o)}
		var last dialect.Token
		for round := range 20 {
			s := sessions[round%2]
			if got := exchange(t, s, dialect.Batch{Try: big(1)}); len(got.Busy) > 0 {
				t.Fatal("a free key is busy")
			}
			for i := range 3 {
				token, ok := s.ReservedToken()
				if !ok || i == 1 {
					var err error
					if token, err = s.Token(); err != nil {
						t.Fatalf("Token: %v", err)
					}
				}
				if round+i > 0 && (token.System != last.System || !last.Before(token)) {
					t.Fatalf("round %d: token %v after %v", round, token, last)
				}
				last = token
			}
			exchange(t, s, dialect.Batch{Release: big(1)})
		}
	}, advisoryKinds...)
}
