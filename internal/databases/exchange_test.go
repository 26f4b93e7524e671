package databases

import (
	"cmp"
	"context"
	"database/sql"
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

// stack returns a stack that takes one key of each level.
func stack(levels ...[]dialect.Key) dialect.Stack { return dialect.Stack{Levels: levels} }

// An exchangeTest is a batch that a session exchanges while another one has
// theirs.
type exchangeTest struct {
	name    string
	had     []dialect.Key // by the session, before the batch
	batch   dialect.Batch
	others  bool // the batch is the other session's
	notHeld bool
	busy    []dialect.Key
	won     [][]int // of each look, then of each stack
	failed  []int   // of each stack: the level, or -1
	held    []dialect.Key
}

var theirs = append(big(1, 3, 4, 20), pairs(7, 9)...)

const many = 4000

func exchangeTests() []exchangeTest {
	mine := append(big(2, -2, 1<<62), pairs(5, -6)...)
	var thousands []dialect.Key
	for i := range int64(many) {
		thousands = append(thousands, big(i*7919-16_000_000)...)
	}
	look := func(want int, keys ...dialect.Key) dialect.Look { return dialect.Look{Keys: keys, Want: want} }
	looks := func(looks ...dialect.Look) dialect.Batch { return dialect.Batch{Looks: looks} }
	stacks := func(stacks ...dialect.Stack) dialect.Batch { return dialect.Batch{Stacks: stacks} }
	full, free := stack(big(5), big(6, 7), big(1)), stack(big(8), big(10))
	return []exchangeTest{
		{name: "free keys", batch: dialect.Batch{Try: mine}, held: mine},
		{name: "some are held", batch: dialect.Batch{Try: append(big(1, 2), pairs(9, 5)...)}, busy: append(big(1), pairs(9)...), held: append(big(2), pairs(5)...)},
		{name: "all are held", had: mine, batch: dialect.Batch{Try: mine}, others: true, busy: mine, held: mine},
		{name: "release and try of one key", had: mine, batch: dialect.Batch{Release: mine, Try: mine}, held: mine},
		{name: "release of another's keys", had: mine, batch: dialect.Batch{Release: mine}, others: true, notHeld: true, held: mine},
		{name: "release of one that is held and one that is not", had: big(2, 5), batch: dialect.Batch{Release: big(2, 3)}, notHeld: true, held: big(5)},
		{name: "release of a free key", batch: dialect.Batch{Release: big(2)}, notHeld: true},
		{name: "release and try of a key that is not held", batch: dialect.Batch{Release: pairs(32), Try: pairs(32)}, notHeld: true, held: pairs(32)},
		{name: "a heartbeat", had: mine, held: mine},
		{name: "thousands", batch: dialect.Batch{Try: thousands}, held: thousands},
		{name: "thousands that are held", had: thousands, batch: dialect.Batch{Try: thousands}, others: true, busy: thousands, held: thousands},

		{name: "one of two that are free", batch: looks(look(1, big(1, 2, 3, 5)...)), won: [][]int{{1}}, held: big(2)},
		{name: "as many as are free", batch: looks(look(2, big(1, 2, 3, 5)...)), won: [][]int{{1, 3}}, held: big(2, 5)},
		{name: "more than are free", batch: looks(look(3, big(5, 3, 2, 1)...)), won: [][]int{{0, 2}}, held: big(2, 5)},
		{name: "none is free", batch: looks(look(2, big(1, 3)...)), won: [][]int{nil}},
		{name: "several looks", batch: looks(look(1, big(1, 2)...), look(1, big(20)...), look(3, big(5, 6, 3, 8)...)), won: [][]int{{1}, nil, {0, 1, 3}}, held: big(2, 5, 6, 8)},
		{name: "both spaces", batch: looks(look(3, append(pairs(7, -12), big(8, 10)...)...)), won: [][]int{{1, 2, 3}}, held: append(big(8, 10), pairs(-12)...)},
		{name: "a look at what the batch gives back", had: big(30), batch: dialect.Batch{Release: big(30), Looks: []dialect.Look{look(2, big(3, 31, 30)...)}}, won: [][]int{{1, 2}}, held: big(30, 31)},

		{name: "the first key of each level", batch: stacks(stack(big(2), big(5))), failed: []int{-1}, won: [][]int{{0, 0}}, held: big(2, 5)},
		{name: "the first free key of each", batch: stacks(stack(big(1, 2), big(4, 20, 5))), failed: []int{-1}, won: [][]int{{1, 2}}, held: big(2, 5)},
		{name: "the first level is full", batch: stacks(stack(big(1, 4), big(2))), failed: []int{0}, won: [][]int{nil}},
		{name: "the last level is full", batch: stacks(stack(big(2, 3), big(5), big(4, 1))), failed: []int{2}, won: [][]int{nil}},
		{name: "one fails among others", batch: stacks(free, full, stack(big(11, 12), big(13))), failed: []int{-1, 2, -1}, won: [][]int{{0, 0}, nil, {0, 0}}, held: big(8, 10, 11, 13)},
		{name: "many levels", batch: stacks(stack(big(31), big(32), big(33), big(34), pairs(35), big(36))), failed: []int{-1}, won: [][]int{{0, 0, 0, 0, 0, 0}}, held: append(big(31, 32, 33, 34, 36), pairs(35)...)},
		{name: "many levels, of which one is full", batch: stacks(stack(big(31), pairs(32), big(33), big(34), pairs(9), big(36))), failed: []int{4}, won: [][]int{nil}},
		{name: "many levels with several keys", batch: stacks(stack(big(31), big(32), big(1, 33), big(34), big(35))), failed: []int{-1}, won: [][]int{{0, 0, 1, 0, 0}}, held: big(31, 32, 33, 34, 35)},
		{name: "many levels with several keys, of which one is full", batch: stacks(stack(big(31), big(32), big(1, 33), big(34), big(4, 20)), free), failed: []int{4, -1}, won: [][]int{nil, {0, 0}}, held: big(8, 10)},
		{name: "a stack of what the batch gives back", had: big(40), batch: dialect.Batch{Release: big(40), Stacks: []dialect.Stack{stack(big(40), big(41))}}, failed: []int{-1}, won: [][]int{{0, 0}}, held: big(40, 41)},
		{name: "stacks of three keys", batch: stacks(stack(big(1), big(41), big(42)), stack(big(2), big(43), big(44)), stack(big(45), big(46), big(20)), stack(big(47), big(3), big(48)), stack(big(5), big(49), big(50))),
			failed: []int{0, -1, 2, 1, -1}, won: [][]int{nil, {0, 0, 0}, nil, nil, {0, 0, 0}}, held: big(2, 43, 44, 5, 49, 50)},
		{name: "what the batch gives back for nothing", had: big(40), batch: dialect.Batch{Release: big(40), Stacks: []dialect.Stack{stack(big(40), big(20))}}, failed: []int{1}, won: [][]int{nil}},

		{
			name: "all parts", had: big(10),
			batch: dialect.Batch{
				Release: big(10, 11), Try: big(1, 12), Looks: []dialect.Look{look(3, big(3, 13, 14)...)},
				Stacks: []dialect.Stack{stack(big(15), big(4, 16)), stack(big(17), big(20))},
			},
			notHeld: true, busy: big(1), won: [][]int{{1, 2}, {0, 1}, nil}, failed: []int{-1, 1}, held: big(12, 13, 14, 15, 16),
		},
	}
}

// A batch carries out its releases first, then its tries, looks and stacks. A
// try names the keys that are held. A look takes the first keys that are free,
// as many as it wants or as there are. A stack takes one key of each level, or
// names a level that is full and leaves nothing behind.
func TestExchange(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		a, b := connect(t, o), connect(t, o)
		exchange(t, b, dialect.Batch{Try: theirs})
		for _, tt := range exchangeTests() {
			if len(tt.held) == many && k.locks == "" {
				continue // the server's lock table is for all tests
			}
			exchange(t, a, dialect.Batch{Try: tt.had})
			s := a
			if tt.others {
				s = b
			}
			got := exchange(t, s, tt.batch)
			if got.NotHeld != tt.notHeld || !slices.Equal(got.Busy, tt.busy) {
				t.Errorf("%s: not held: %t, busy %v, want %t, %v", tt.name, got.NotHeld, got.Busy, tt.notHeld, tt.busy)
			}
			for i, l := range got.Looks {
				if !slices.Equal(l.Won, tt.won[i]) {
					t.Errorf("%s: look %d won %v, want %v", tt.name, i, l.Won, tt.won[i])
				}
			}
			for i, s := range got.Stacks {
				if won := tt.won[len(got.Looks)+i]; s.Failed != tt.failed[i] || s.Failed < 0 && !slices.Equal(s.Won, won) {
					t.Errorf("%s: stack %d: failed %d, won %v, want %d, %v", tt.name, i, s.Failed, s.Won, tt.failed[i], won)
				}
			}
			mustHold(t, a, tt.held)
			exchange(t, a, dialect.Batch{Release: tt.held})
		}
		mustHold(t, b, theirs)
		b.Destroy() // its keys are free then
		for _, key := range theirs {
			lockertest.Eventually(t, "the keys of the other session are free", func() bool {
				return len(exchange(t, a, dialect.Batch{Try: []dialect.Key{key}}).Busy) == 0
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
