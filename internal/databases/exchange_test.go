package databases

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/choose"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

var settings = dialect.Settings{Lease: time.Minute, StatementTimeout: 50 * time.Second, Proof: 2 * time.Second}

// connect opens a session of the dialect of o.
func connect(t *testing.T, o lockertest.Orders) dialect.Session {
	t.Helper()
	return connectTo(t, pool(t, o), o.LeaseTable)
}

// connectTo opens a session on db, with a lease table if leaseTable is true.
func connectTo(t *testing.T, db *sql.DB, leaseTable bool) dialect.Session {
	t.Helper()
	d, err := choose.Dialect(context.Background(), db, leaseTable)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(context.Background(), db, settings)
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
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(keys, func(x, y dialect.Key) int {
		if x.Space != y.Space {
			return int(x.Space) - int(y.Space)
		}
		if x.ID < y.ID {
			return -1
		}
		return 1
	})
	return keys
}

// A set of keys is acquired as a whole or not at all.
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
	})
}

func TestExchange(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
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
		exchange(t, a, dialect.Batch{}) // a heartbeat
		// Groups that contain the same keys get one each.
		got = exchange(t, a, dialect.Batch{Any: [][]dialect.Key{big(20, 21), big(20, 21), big(20, 21)}})
		slices.Sort(got.Won)
		if !reflect.DeepEqual(got.Won, []int{-1, 0, 1}) {
			t.Errorf("three groups of the same two keys: won %v", got.Won)
		}
		// The keys of a session that ends are free.
		a.Destroy()
		for _, key := range big(-2, 20) {
			lockertest.Eventually(t, "the keys of the other session are free", func() bool {
				return len(exchange(t, b, dialect.Batch{Try: []dialect.Key{key}}).Busy) == 0
			})
		}
	})
}

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

// Sessions acquire and release keys at random, in batches, in any order. Two of
// them never hold a key at the same time, and each knows which keys it holds.
func TestExchangesAtRandom(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		const keys, sessions, rounds = 12, 4, 60
		var (
			mu    sync.Mutex
			owner [keys]int // the session's number + 1
			wg    sync.WaitGroup
		)
		for i := range sessions {
			s := connect(t, o)
			rng := rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // a test's
			wg.Go(func() {
				mine := map[int64]bool{}
				took := func(id int64) {
					mu.Lock()
					defer mu.Unlock()
					if owner[id] != 0 {
						t.Errorf("session %d acquired key %d, which session %d holds", i, id, owner[id]-1)
					}
					owner[id], mine[id] = i+1, true
				}
				for range rounds {
					var b dialect.Batch
					asked := map[int64]bool{}
					mu.Lock()
					for id := range mine {
						if rng.IntN(2) == 0 {
							b.Release = append(b.Release, big(id)...)
							owner[id] = 0
							asked[id] = true
							delete(mine, id)
						}
					}
					mu.Unlock()
					for range 3 {
						if id := rng.Int64N(keys); !mine[id] && !asked[id] {
							asked[id] = true
							b.Try = append(b.Try, big(id)...)
						}
					}
					var group []dialect.Key
					for range 3 {
						if id := rng.Int64N(keys); !mine[id] && !asked[id] {
							asked[id] = true
							group = append(group, big(id)...)
						}
					}
					if len(group) > 0 {
						b.Any = append(b.Any, group)
					}
					if err := s.Exchange(&b); err != nil {
						t.Errorf("Exchange: %v", err)
						return
					}
					if len(b.NotHeld) > 0 {
						t.Errorf("session %d did not hold %v", i, b.NotHeld)
					}
					for _, k := range b.Try {
						if !slices.Contains(b.Busy, k) {
							took(k.ID)
						}
					}
					for g, won := range b.Won {
						if won >= 0 {
							took(b.Any[g][won].ID)
						}
					}
				}
				if n := len(held(t, s)); n != len(mine) {
					t.Errorf("session %d holds %d keys in the database, but has recorded %d", i, n, len(mine))
				}
			})
		}
		wg.Wait()
	})
}

// The database frees the keys of a silent session, but never before its lease
// ends. The session finds out.
func TestSilentSession(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		rival := connect(t, o)
		db := pool(t, o)
		d, err := choose.Dialect(t.Context(), db, o.LeaseTable)
		if err != nil {
			t.Fatal(err)
		}
		set := settings
		set.Lease = 2 * time.Second
		silent, err := d.Open(t.Context(), db, set)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Destroy()
		sent := time.Now()
		if got := exchange(t, silent, dialect.Batch{Try: big(1)}); len(got.Busy) > 0 {
			t.Fatal("a free key is busy")
		}
		deadline := sent.Add(30 * time.Second)
		for len(exchange(t, rival, dialect.Batch{Try: big(1)}).Busy) > 0 {
			if time.Now().After(deadline) {
				t.Fatal("the key of a silent session is not free long after its lease")
			}
			time.Sleep(time.Millisecond)
		}
		// The clocks of the database and of the test differ: their rates may
		// differ by a thousandth.
		if after := time.Since(sent); after < set.Lease-set.Lease/1000 {
			t.Errorf("the key was free %v after it was acquired, before the lease had ended", after)
		}
		var failure *dialect.Failure
		if err := silent.Exchange(&dialect.Batch{}); !errors.As(err, &failure) || failure.Kind != dialect.Gone {
			t.Errorf("Exchange after the lease: %v, want a Failure of Kind Gone", err)
		}
	})
}

// Of two sessions with different secrets that come at the same moment, never do
// both use the namespace. A use ends with DropSecret or with the session.
func TestSecretChecks(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		sessions := []dialect.Session{connect(t, o), connect(t, o)}
		for round := range 20 {
			var (
				got   [2]bool
				ready sync.WaitGroup
				wg    sync.WaitGroup
			)
			ready.Add(2)
			for i, s := range sessions {
				check := dialect.SecretCheckOf("namespace-"+itoa(round), uint32(i+1)) //nolint:gosec // 1 or 2
				wg.Go(func() {
					ready.Done()
					ready.Wait()
					conflict, err := s.UseSecret(check)
					if err != nil {
						t.Errorf("UseSecret: %v", err)
						return
					}
					got[i] = !conflict
				})
			}
			wg.Wait()
			if got[0] && got[1] {
				t.Errorf("round %d: both use the namespace", round)
			}
		}
		check := dialect.SecretCheckOf("another", 1)
		rival := dialect.SecretCheckOf("another", 2)
		ask := func(s dialect.Session, c dialect.SecretCheck) bool {
			conflict, err := s.UseSecret(c)
			if err != nil {
				t.Fatalf("UseSecret: %v", err)
			}
			return !conflict
		}
		for _, s := range []dialect.Session{sessions[0], sessions[0], sessions[1]} {
			if !ask(s, check) {
				t.Error("the same check of two sessions is a conflict")
			}
		}
		third := connect(t, o)
		if ask(third, rival) {
			t.Error("another fingerprint of a class in use makes no conflict")
		}
		if err := sessions[0].DropSecret(check); err != nil {
			t.Fatalf("DropSecret: %v", err)
		}
		if ask(third, rival) {
			t.Error("a check has ended although another session has it too")
		}
		sessions[1].Destroy()
		lockertest.Eventually(t, "the check ends with its session", func() bool { return ask(third, rival) })
	})
}

// A session with another secret does not disturb a fleet that is there, however
// often it asks: sessions of the fleet that come meanwhile are never refused.
func TestSecretNewcomerDoesNotDisturb(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		fleet, returning, newcomer := connect(t, o), connect(t, o), connect(t, o)
		right, wrong := dialect.SecretCheckOf("payouts", 1), dialect.SecretCheckOf("payouts", 2)
		if conflict, err := fleet.UseSecret(right); err != nil || conflict {
			t.Fatalf("UseSecret: conflict %t, %v", conflict, err)
		}
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if conflict, err := newcomer.UseSecret(wrong); err != nil || !conflict {
					t.Errorf("another secret: conflict %t, %v", conflict, err)
					return
				}
			}
		})
		for range 50 {
			if conflict, err := returning.UseSecret(right); err != nil || conflict {
				t.Errorf("the fleet's secret: conflict %t, %v", conflict, err)
			}
			if err := returning.DropSecret(right); err != nil {
				t.Errorf("DropSecret: %v", err)
			}
		}
		close(done)
		wg.Wait()
	})
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
	})
}
