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
	return keys
}

// mustHold fails the test unless s holds exactly these keys.
func mustHold(t *testing.T, s dialect.Session, want []dialect.Key) {
	t.Helper()
	order := func(x, y dialect.Key) int { return cmp.Or(cmp.Compare(x.Space, y.Space), cmp.Compare(x.ID, y.ID)) }
	got, want := slices.SortedFunc(slices.Values(held(t, s)), order), slices.SortedFunc(slices.Values(want), order)
	if !slices.Equal(got, want) {
		t.Errorf("held: %v, want %v", got, want)
	}
}

// Releases come before tries. A batch names the keys that the session did not
// hold and those that another session holds.
func TestReleaseAndTry(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
		mine, theirs := append(big(1, -2, 1<<62), pairs(5, -6)...), append(big(3), pairs(7)...)
		for _, tt := range []struct {
			name          string
			s             dialect.Session
			batch         dialect.Batch
			notHeld, busy []dialect.Key
		}{
			{"free keys", a, dialect.Batch{Try: mine}, nil, nil},
			{"some are held", b, dialect.Batch{Try: append(append(big(1), pairs(5)...), theirs...)}, nil, append(big(1), pairs(5)...)},
			{"all are held", b, dialect.Batch{Try: mine}, nil, mine},
			{"release and try of one key", a, dialect.Batch{Release: mine, Try: mine}, nil, nil},
			{"release of another's keys", a, dialect.Batch{Release: theirs}, theirs, nil},
			{"release of one that is held and one that is not", a, dialect.Batch{Release: big(1, 3)}, big(3), nil},
			{"release of a free key", a, dialect.Batch{Release: big(1)}, big(1), nil},
			{"one free key", b, dialect.Batch{Try: big(1)}, nil, nil},
			{"one key that is held", a, dialect.Batch{Try: big(1)}, nil, big(1)},
			{"release and try of a key that is not held", a, dialect.Batch{Release: pairs(32), Try: pairs(32)}, pairs(32), nil},
			{"it is held then", a, dialect.Batch{Release: pairs(32)}, nil, nil},
			{"a heartbeat", a, dialect.Batch{}, nil, nil},
		} {
			got := exchange(t, tt.s, tt.batch)
			if !reflect.DeepEqual(got.NotHeld, tt.notHeld) || !reflect.DeepEqual(got.Busy, tt.busy) {
				t.Errorf("%s: not held %v, busy %v, want %v, %v", tt.name, got.NotHeld, got.Busy, tt.notHeld, tt.busy)
			}
		}
		mustHold(t, a, append(big(-2, 1<<62), pairs(5, -6)...))
		mustHold(t, b, append(big(1), theirs...))
		// The keys of a session that ends are free.
		a.Destroy()
		for _, key := range append(big(-2), pairs(5)...) {
			lockertest.Eventually(t, "the keys of the other session are free", func() bool {
				return len(exchange(t, b, dialect.Batch{Try: []dialect.Key{key}}).Busy) == 0
			})
		}
	}, advisoryKinds...)
}

// A look takes the first keys that are free, as many as it wants or as there
// are.
func TestLooks(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
		exchange(t, b, dialect.Batch{Try: append(big(1, 3, 20), pairs(11)...)})
		for _, tt := range []struct {
			name    string
			release []dialect.Key
			looks   []dialect.Look
			won     [][]int
			held    []dialect.Key
		}{
			{"one of two that are free", nil, []dialect.Look{{Keys: big(1, 2, 3, 4), Want: 1}}, [][]int{{1}}, big(2)},
			{"as many as are free", nil, []dialect.Look{{Keys: big(1, 2, 3, 4), Want: 2}}, [][]int{{1, 3}}, big(2, 4)},
			{"more than are free", nil, []dialect.Look{{Keys: big(4, 3, 2, 1), Want: 3}}, [][]int{{0, 2}}, big(2, 4)},
			{"none is free", nil, []dialect.Look{{Keys: big(1, 3), Want: 2}}, [][]int{nil}, nil},
			{"several looks", nil, []dialect.Look{{Keys: big(1, 2), Want: 1}, {Keys: big(20), Want: 1}, {Keys: big(5, 6, 3, 7), Want: 3}},
				[][]int{{1}, nil, {0, 1, 3}}, big(2, 5, 6, 7)},
			{"both spaces", nil, []dialect.Look{{Keys: append(pairs(11, -12), big(8, 9)...), Want: 3}}, [][]int{{1, 2, 3}}, append(big(8, 9), pairs(-12)...)},
			{"what the batch gives back", big(30), []dialect.Look{{Keys: big(3, 31, 30), Want: 2}}, [][]int{{1, 2}}, big(30, 31)},
		} {
			exchange(t, a, dialect.Batch{Try: tt.release})
			got := exchange(t, a, dialect.Batch{Release: tt.release, Looks: tt.looks})
			for i, l := range got.Looks {
				if !slices.Equal(l.Won, tt.won[i]) {
					t.Errorf("%s: look %d: won %v, want %v", tt.name, i, l.Won, tt.won[i])
				}
			}
			mustHold(t, a, tt.held)
			exchange(t, a, dialect.Batch{Release: tt.held})
		}
	}, advisoryKinds...)
}

// A stack takes one key of each level. If a level has none, the stack names it
// and leaves nothing behind.
func TestStacks(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
		exchange(t, b, dialect.Batch{Try: append(big(1, 4, 20), pairs(9)...)})
		full, free := dialect.Stack{Levels: [][]dialect.Key{big(5), big(6, 7), big(1)}}, dialect.Stack{Levels: [][]dialect.Key{big(8), big(10)}}
		for _, tt := range []struct {
			name    string
			release []dialect.Key
			stacks  []dialect.Stack
			failed  []int
			won     [][]int
			held    []dialect.Key
		}{
			{"the first key of each level", nil, []dialect.Stack{{Levels: [][]dialect.Key{big(2), big(3)}}}, []int{-1}, [][]int{{0, 0}}, big(2, 3)},
			{"the first free key of each", nil, []dialect.Stack{{Levels: [][]dialect.Key{big(1, 2), big(4, 20, 3)}}}, []int{-1}, [][]int{{1, 2}}, big(2, 3)},
			{"the first level is full", nil, []dialect.Stack{{Levels: [][]dialect.Key{big(1, 4), big(2)}}}, []int{0}, [][]int{nil}, nil},
			{"the last level is full", nil, []dialect.Stack{{Levels: [][]dialect.Key{big(2, 3), big(5), big(4, 1)}}}, []int{2}, [][]int{nil}, nil},
			{"one fails among others", nil, []dialect.Stack{free, full, {Levels: [][]dialect.Key{big(11, 12), big(13)}}}, []int{-1, 2, -1}, [][]int{{0, 0}, nil, {0, 0}}, big(8, 10, 11, 13)},
			{"many levels", nil, []dialect.Stack{{Levels: [][]dialect.Key{big(31), big(32), big(33), big(34), pairs(35), big(36)}}},
				[]int{-1}, [][]int{{0, 0, 0, 0, 0, 0}}, append(big(31, 32, 33, 34, 36), pairs(35)...)},
			{"many levels, of which one is full", nil, []dialect.Stack{{Levels: [][]dialect.Key{big(31), pairs(32), big(33), big(34), pairs(9), big(36)}}}, []int{4}, [][]int{nil}, nil},
			{"many levels with several keys", nil, []dialect.Stack{{Levels: [][]dialect.Key{big(31), big(32), big(1, 33), big(34), big(35)}}},
				[]int{-1}, [][]int{{0, 0, 1, 0, 0}}, big(31, 32, 33, 34, 35)},
			{"many levels with several keys, of which one is full", nil, []dialect.Stack{{Levels: [][]dialect.Key{big(31), big(32), big(1, 33), big(34), big(4, 20)}}, free},
				[]int{4, -1}, [][]int{nil, {0, 0}}, big(8, 10)},
			{"what the batch gives back", big(40), []dialect.Stack{{Levels: [][]dialect.Key{big(40), big(41)}}}, []int{-1}, [][]int{{0, 0}}, big(40, 41)},
			{"what the batch gives back for nothing", big(40), []dialect.Stack{{Levels: [][]dialect.Key{big(40), big(20)}}}, []int{1}, [][]int{nil}, nil},
		} {
			exchange(t, a, dialect.Batch{Try: tt.release})
			got := exchange(t, a, dialect.Batch{Release: tt.release, Stacks: tt.stacks})
			for i, s := range got.Stacks {
				if s.Failed != tt.failed[i] || s.Failed < 0 && !slices.Equal(s.Won, tt.won[i]) {
					t.Errorf("%s: stack %d: failed %d, won %v, want %d, %v", tt.name, i, s.Failed, s.Won, tt.failed[i], tt.won[i])
				}
			}
			mustHold(t, a, tt.held)
			exchange(t, a, dialect.Batch{Release: tt.held})
		}
	}, advisoryKinds...)
}

// All parts of a batch are carried out, and each has its own response.
func TestBatchOfAllParts(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
		exchange(t, b, dialect.Batch{Try: big(1, 2, 3, 4)})
		exchange(t, a, dialect.Batch{Try: big(10)})
		got := exchange(t, a, dialect.Batch{
			Release: big(10, 11), Try: big(1, 12),
			Looks:  []dialect.Look{{Keys: big(2, 13, 14), Want: 3}},
			Stacks: []dialect.Stack{{Levels: [][]dialect.Key{big(15), big(3, 16)}}, {Levels: [][]dialect.Key{big(17), big(4)}}},
		})
		if !reflect.DeepEqual(got.NotHeld, big(11)) || !reflect.DeepEqual(got.Busy, big(1)) {
			t.Errorf("not held %v, busy %v", got.NotHeld, got.Busy)
		}
		if won := got.Looks[0].Won; !slices.Equal(won, []int{1, 2}) {
			t.Errorf("the look won %v", won)
		}
		if s := got.Stacks; s[0].Failed >= 0 || !slices.Equal(s[0].Won, []int{0, 1}) || s[1].Failed != 1 {
			t.Errorf("stacks %+v", s)
		}
		mustHold(t, a, big(12, 13, 14, 15, 16))
	}, advisoryKinds...)
}

// Looks and stacks of one batch that share keys get different ones. Advisory
// locks are no part of this test, since PostgreSQL grants them to their session
// again: the key table puts each key in one place of a batch.
func TestSharedKeys(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		s := connect(t, o)
		stack := dialect.Stack{Levels: [][]dialect.Key{big(1, 2), big(11, 12, 13)}}
		look := dialect.Look{Keys: big(21, 22, 23), Want: 2}
		got := exchange(t, s, dialect.Batch{Looks: []dialect.Look{look, look}, Stacks: []dialect.Stack{stack, stack, stack}})
		var won []dialect.Key
		for _, l := range got.Looks {
			for _, place := range l.Won {
				won = append(won, l.Keys[place])
			}
		}
		failed := 0
		for _, of := range got.Stacks {
			if of.Failed >= 0 {
				failed++
				continue
			}
			for level, place := range of.Won {
				won = append(won, of.Levels[level][place])
			}
		}
		if failed != 1 || len(won) != 7 {
			t.Errorf("%d stacks failed, want 1; won %v", failed, won)
		}
		mustHold(t, s, won)
	})
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
