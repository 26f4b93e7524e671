// Package lockertest is the conformance suite of sqllock.Locker. It checks what
// every locker promises, wherever it keeps its locks. A locker's own tests run
// it with
//
//	lockertest.Run(t, lockertest.Fleet{New: …})
//
// and, in a test whose name begins with TestLong, with RunLong.
package lockertest

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Fleet makes the lockers under test.
type Fleet struct {
	// New returns a locker that stands for a process of its own in one fleet:
	// the locks of all lockers exclude each other. Required. A kind of locker
	// that serves one process only returns the same locker each time.
	New func(t *testing.T) sqllock.Locker

	// InLine counts the calls of Lock that wait in a locker that New has
	// returned. Required.
	InLine func(l sqllock.Locker) int

	// AnyOrder says that TryAny may take another free key than the first.
	AnyOrder bool

	// Leftovers counts the locks that the database holds now. It is nil if
	// there is no database.
	Leftovers func(t *testing.T) int

	// long says that RunLong runs.
	long bool
}

// rounds returns how often a test repeats what it does.
func (f Fleet) rounds(short, long int) int {
	if f.long {
		return long
	}
	return short
}

// A conformanceTest is one test of the suite.
type conformanceTest struct {
	name string
	run  func(*testing.T, Fleet)
}

// crowds are the tests in which callers contend.
var crowds = []conformanceTest{
	{"Cancelled", cancelled},
	{"Contention", contention},
	{"AnyContention", anyContention},
	{"EachContention", eachContention},
	{"AllContention", allContention},
	{"AnyWaits", anyWaits},
}

// Run runs the suite, with a few rounds of each test in which callers contend.
func Run(t *testing.T, fleet Fleet) {
	fleet.run(t, append([]conformanceTest{
		{"Exclusion", exclusion},
		{"KeySpaces", keySpaces},
		{"Unlock", unlock},
		{"Waits", waits},
		{"FirstComeFirstServed", firstComeFirstServed},
		{"WaitEnds", waitEnds},
		{"Any", tryAny},
		{"Each", tryEach},
		{"Readers", readers},
	}, crowds...))
}

// RunLong runs the tests in which callers contend, with many rounds of each.
func RunLong(t *testing.T, fleet Fleet) {
	fleet.long = true
	fleet.run(t, append([]conformanceTest{{"ThousandRounds", thousandRounds}}, crowds...))
}

func (f Fleet) run(t *testing.T, tests []conformanceTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, f)
			if f.Leftovers != nil {
				Eventually(t, "no lock remains in the database", func() bool { return f.Leftovers(t) == 0 })
			}
		})
	}
}

// timeout bounds every wait. No test asserts that a wait is shorter.
const timeout = 30 * time.Second

// Eventually polls until ok returns true, and fails the test if that takes too
// long.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timeout while waiting for this: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

var keys atomic.Int64

// newKey returns a key that no other test uses.
func newKey(t *testing.T) sqllock.Key {
	return sqllock.Namespace("lockertest").Key(t.Name() + strconv.FormatInt(keys.Add(1), 10))
}

// newKeys returns n keys that no other test uses.
func newKeys(t *testing.T, n int) (keys []sqllock.Key) {
	for range n {
		keys = append(keys, newKey(t))
	}
	return keys
}

func try(t *testing.T, l sqllock.Locker, key sqllock.Key) *sqllock.Lock {
	t.Helper()
	lock, err := l.TryLock(t.Context(), key)
	if err != nil {
		t.Fatalf("TryLock of a free key: %v", err)
	}
	if err := lock.Err(); err != nil {
		t.Fatalf("Err of a lock just taken: %v", err)
	}
	return lock
}

func reject(t *testing.T, l sqllock.Locker, key sqllock.Key) {
	t.Helper()
	lock, err := l.TryLock(t.Context(), key)
	if !errors.Is(err, sqllock.ErrHeld) || lock != nil {
		t.Fatalf("TryLock of a held key: %v, %v, want ErrHeld", lock, err)
	}
}

func release(t *testing.T, lock *sqllock.Lock) {
	t.Helper()
	if err := lock.Unlock(); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

func exclusion(t *testing.T, fleet Fleet) {
	a, b := fleet.New(t), fleet.New(t)
	key := newKey(t)
	lock := try(t, a, key)
	reject(t, a, key) // not re-entrant
	reject(t, b, key)
	other := try(t, b, newKey(t))
	release(t, lock)
	release(t, try(t, b, key))
	release(t, try(t, a, key))
	release(t, other)
}

// keySpaces: keys that differ never exclude each other, and a name excludes its
// number.
func keySpaces(t *testing.T, fleet Fleet) {
	both, named := []sqllock.Locker{fleet.New(t), fleet.New(t)}, newKey(t)
	keys := []sqllock.Key{
		named, sqllock.ID(0), sqllock.ID(7), sqllock.Pair(0, 7), sqllock.ID(-1), sqllock.Pair(-1, -1),
		sqllock.Pair(1, -2), sqllock.Pair(1, 2), sqllock.Pair(2, 1), // swapped, and of one class
		sqllock.ID(-1 << 63), sqllock.ID(1<<63 - 1), sqllock.Pair(-1<<31, 1<<31-1), // outermost
	}
	var locks sqllock.Locks
	for i, key := range keys {
		lock := try(t, both[i%2], key)
		if lock.Key() != key {
			t.Errorf("Key() = %v, want %v", lock.Key(), key)
		}
		locks = append(locks, lock)
	}
	for _, l := range both {
		for _, key := range append(keys, sqllock.ID(named.Int64())) {
			reject(t, l, key)
		}
	}
	mustUnlockAll(t, locks)
}

// thousandRounds: of two lockers that try for a key, exactly one is granted, and
// after its release the other one is.
func thousandRounds(t *testing.T, fleet Fleet) {
	a, b := fleet.New(t), fleet.New(t)
	key := newKey(t)
	for range 1000 {
		lock := try(t, a, key)
		reject(t, b, key)
		release(t, lock)
		release(t, try(t, b, key))
		a, b = b, a
	}
}

func unlock(t *testing.T, fleet Fleet) {
	a, key := fleet.New(t), newKey(t)
	lock := try(t, a, key)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := lock.Unlock(); err != nil {
				t.Errorf("Unlock at once with others: %v", err)
			}
		})
	}
	wg.Wait()
	next := try(t, a, key)
	release(t, lock) // again, while the next caller holds the key
	reject(t, a, key)
	release(t, next)
	if err := lock.Err(); !errors.Is(err, sqllock.ErrReleased) {
		t.Errorf("Err after Unlock: %v, want ErrReleased", err)
	}
}
