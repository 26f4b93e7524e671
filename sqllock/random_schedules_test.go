package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

// TestRandomSchedules makes random calls of every kind on two Sessions. Their
// server loses responses and connections, and their machines are suspended. The
// key table keeps its invariants at every moment, and at the end it is empty. What
// callers see is checked by internal/simulation.
//
// The seed decides the calls and the faults. The scheduler of Go has a say in
// their order, so one seed may need several runs to fail again.
func TestRandomSchedules(t *testing.T) { randomSchedules(t, 0, 100) }

// TestLongRandomSchedules goes on with other seeds.
func TestLongRandomSchedules(t *testing.T) { randomSchedules(t, 100, 1100) }

func randomSchedules(t *testing.T, from, to uint64) {
	for seed := from; seed < to; seed++ {
		ok := t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomSchedule(t, seed) })
		})
		if !ok {
			t.Fatalf("seed %d has failed. To repeat it: go test ./sqllock -count=20 -run '^%s$/^seed=%d$'", seed, t.Name(), seed)
		}
	}
}

func randomSchedule(t *testing.T, seed uint64) {
	server := newFakeServer()
	rng := newRandom(seed)
	server.onOpen = func(n int) error {
		time.Sleep(rng.duration(20 * time.Millisecond))
		if n > 2 && rng.oneIn(4) {
			return errGone
		}
		return nil
	}
	var (
		sessions []*Session
		asleep   [2]atomic.Int64
	)
	for i := range asleep {
		s, err := Open(background, new(sql.DB), withFake(server), withoutLog(), WithMaxHeld(6), WithMaxConns(3), withPerConn(2), suspended(&asleep[i]))
		if err != nil {
			t.Fatalf("%v", err)
		}
		sessions = append(sessions, s)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // the faults
		for {
			select {
			case <-stop:
				return
			case <-time.After(rng.duration(30 * time.Millisecond)):
				server.hurt(rng)
				if rng.oneIn(20) {
					asleep[rng.intn(2)].Add(int64(rng.duration(20 * time.Second)))
				}
				for _, s := range sessions {
					checkInvariants(t, s.table)
				}
			}
		}
	})
	var callers sync.WaitGroup
	for range 12 {
		i := rng.intn(2)
		callers.Go(func() {
			for range 40 {
				randomCall(rng, sessions[i])
			}
		})
	}
	callers.Wait()
	close(stop)
	wg.Wait()
	server.heal()
	time.Sleep(time.Minute)
	for i, s := range sessions {
		if got := s.Stats(); got.Held != 0 || got.Waiting != 0 || s.table.keys.len() != 0 {
			t.Errorf("session %d holds %d, %d wait, %d key states", i, got.Held, got.Waiting, s.table.keys.len())
		}
		mustUnlock(t, mustTry(t, s, ID(1)))
		_ = s.Close()
	}
	if n := server.held(); n != 0 {
		t.Errorf("%d locks are left in the database", n)
	}
}

func randomCall(rng *random, s *Session) {
	ctx, cancel := context.WithTimeout(background, rng.duration(40*time.Millisecond)+1)
	defer cancel()
	key := ID(int64(rng.intn(4)))
	var (
		lock  *Lock
		locks Locks
		err   error
	)
	switch rng.intn(13) {
	case 9:
		locks, err = s.TryEach(ctx, [][]Key{ids(0, 1), ids(2, 3)})
	case 10:
		locks, err = s.TryEach(ctx, [][]Key{{key}, ids(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)})
	case 11:
		locks, err = s.TryEach(ctx, [][]Key{ids(1, 0), ids(10, 2)})
	case 12:
		lock, err = s.LockAny(waiting.WithTerms(ctx, waiting.Terms{Rank: uint64(rng.intn(3))}), key, ID(3))
	case 5:
		lock, err = s.TryRLock(ctx, key)
	case 6:
		lock, err = s.RLock(ctx, key)
	case 7:
		locks, err = s.TryLockAll(ctx, ID(3), key, Pair(1, 1))
	case 8:
		locks, err = s.LockAll(ctx, ID(2), ID(0))
	case 4:
		lock, err = s.TryAny(ctx, ID(3), ID(2), Pair(1, 1))
	case 0:
		lock, err = s.TryLock(ctx, key)
	case 1:
		lock, err = s.Lock(ctx, key)
	case 2:
		lock, err = s.TryAny(ctx, ID(0), ID(1), ID(2), ID(3))
	case 3:
		lock, err = s.LockAny(ctx, ID(2), ID(3), Pair(1, 1))
	}
	if err != nil {
		return
	}
	if lock != nil {
		locks = Locks{lock}
	}
	time.Sleep(rng.duration(10 * time.Millisecond))
	_ = locks.Unlock()
}

// checkInvariants checks the invariants of keyTable and keyState.
func checkInvariants(t *testing.T, table *keyTable) {
	table.mu.Lock()
	defer table.mu.Unlock()
	taken, busy, pausing := 0, 0, 0
	for k := range table.keys.all() {
		if k.busySince != 0 {
			busy++
		}
		if _, ok := table.pausing[k]; ok != k.polling {
			t.Errorf("the timer of a key runs: %t, and is known: %t", k.polling, ok)
		} else if ok {
			pausing++
		}
		switch {
		case table.keys.of(k.key) != k:
			t.Errorf("a key state is stored under another key")
		case !moves(k, nil):
			t.Errorf("an idle key with %d waiters makes no progress", len(k.waiters))
		case k.phase == queued && !slices.Contains(sessionKeyOf(k).slot.singles, k):
			t.Errorf("a key is queued nowhere")
		case k.phase == held && (k.lock == nil) == (len(k.readers) == 0):
			t.Errorf("a key is held without a holder, or by readers beside an exclusive holder")
		case k.phase == held && k.mode == shared && len(k.waiters) > 0 && !k.waiters[0].waits:
			t.Errorf("a call that only tries waits for readers")
		case k.phase == held && k.mode == shared && len(k.waiters) > 0 && k.waiters[0].mode == shared && k.own.suits(k.firstKey()):
			t.Errorf("a reader waits for readers")
		case k.phase == releasing && !slices.Contains(sessionKeyOf(k).conn.slot.releases, k):
			t.Errorf("a release is queued nowhere")
		}
		if k.phase == held || k.phase == releasing || k.phase == freeing || k.phase == reserved {
			taken++
		}
		if (k.phase == reserved) != (k.reservedFor != nil) || k.phase == reserved && (k.reservedFor.decided || !k.reservedFor.each.has(k)) {
			t.Errorf("a key is reserved for no request")
		}
		for _, r := range k.waiters {
			if r.decided || !slices.Contains(r.states, k) {
				t.Errorf("a request waits for a key that it does not want")
			}
		}
	}
	if busy != table.busy || pausing != len(table.pausing) {
		t.Errorf("%d keys are busy, %d pause, counted %d and %d", busy, pausing, table.busy, len(table.pausing))
	}
	if taken != table.held {
		t.Errorf("%d keys are taken, %d counted", taken, table.held)
	}
}

// has reports whether the request has reserved k.
func (e *eachRequest) has(k *keyState) bool {
	return slices.ContainsFunc(e.groups, func(g eachGroup) bool { return g.reserved == k })
}

// moves reports whether k will make progress. That is so if a request is queued or
// under way, or a timer runs. If a waiter wants other keys with it, it is so as
// well if one of those makes progress.
func moves(k *keyState, behind []*keyState) bool {
	switch {
	case k.phase != idle:
		return true
	case len(k.waiters) == 0 || slices.Contains(behind, k):
		return false
	case k.pending():
		return true
	}
	first := k.waiters[0]
	for _, first = range k.waiters {
		if first.each == nil {
			break
		}
	}
	if first.each != nil && k.claimed != nil {
		first = k.claimed // the others wait for it
	}
	return (first.all || first.each != nil) && slices.ContainsFunc(first.states, func(other *keyState) bool { return other != nil && other != k && moves(other, append(behind, k)) })
}

// random is a source of random numbers for several goroutines.
type random struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newRandom(seed uint64) *random { return &random{rng: rand.New(rand.NewPCG(seed, 1))} }

func (r *random) intn(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

func (r *random) oneIn(n int) bool { return r.intn(n) == 0 }

func (r *random) duration(limit time.Duration) time.Duration {
	return time.Duration(r.intn(int(limit)))
}

// hurt sets new faults for a random session.
func (f *fakeServer) hurt(rng *random) {
	f.mu.Lock()
	s := f.sessions[rng.intn(len(f.sessions))]
	f.mu.Unlock()
	lose := func() error {
		time.Sleep(rng.duration(5 * time.Millisecond))
		if rng.oneIn(20) {
			return errGone
		}
		return nil
	}
	stall := func() error {
		if rng.oneIn(10) {
			time.Sleep(rng.duration(12 * time.Second))
		}
		return nil
	}
	switch rng.intn(4) {
	case 0:
		s.hooks(lose, nil)
	case 1:
		s.hooks(nil, lose)
	case 2:
		s.hooks(nil, stall)
	case 3:
		s.hooks(nil, nil)
	}
}

// heal ends all faults.
func (f *fakeServer) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onOpen = nil
	for _, s := range f.sessions {
		s.hooks(nil, nil)
	}
}
