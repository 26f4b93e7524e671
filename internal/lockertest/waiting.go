package lockertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// granted is the result of a call of Lock.
type granted struct {
	lock *sqllock.Lock
	err  error
}

func lockLater(ctx context.Context, l sqllock.Locker, key sqllock.Key) <-chan granted {
	c := make(chan granted, 1)
	go func() {
		lock, err := l.Lock(ctx, key)
		c <- granted{lock, err}
	}()
	return c
}

func await(t *testing.T, c <-chan granted) *sqllock.Lock {
	t.Helper()
	select {
	case g := <-c:
		if g.err != nil {
			t.Fatalf("Lock: %v", g.err)
		}
		return g.lock
	case <-time.After(timeout):
		t.Fatal("Lock did not get a key that was released")
		return nil
	}
}

func waitInProcess(t *testing.T, fleet Fleet) {
	a := fleet.New(t)
	waits(t, a, a, fleet.InLine)
}

func waitAcrossProcesses(t *testing.T, fleet Fleet) {
	waits(t, fleet.New(t), fleet.New(t), fleet.InLine)
}

// waits: a call that waits in waiter gets the key when holder releases it.
func waits(t *testing.T, holder, waiter sqllock.Locker, inLine func(sqllock.Locker) int) {
	t.Helper()
	key := newKey(t)
	lock := try(t, holder, key)
	waiting := lockLater(t.Context(), waiter, key)
	Eventually(t, "the waiter is in line", func() bool { return inLine(waiter) == 1 })
	select {
	case g := <-waiting:
		t.Fatalf("Lock of a held key returned: %v, %v", g.lock, g.err)
	default:
	}
	release(t, lock)
	release(t, await(t, waiting))
	release(t, try(t, holder, key))
}

// firstComeFirstServed: the waiters of one process get the key in the order of
// their calls. A call that only tries does not overtake them.
func firstComeFirstServed(t *testing.T, fleet Fleet) {
	a := fleet.New(t)
	key := newKey(t)
	lock := try(t, a, key)
	const n = 20
	order := make(chan int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			lock, err := a.Lock(t.Context(), key)
			if err != nil {
				t.Errorf("Lock: %v", err)
				return
			}
			order <- i
			_ = lock.Unlock()
		})
		Eventually(t, "the waiter is in line", func() bool { return fleet.InLine(a) == i+1 })
	}
	reject(t, a, key)
	release(t, lock)
	wg.Wait()
	for i := range n {
		if got := <-order; got != i {
			t.Fatalf("waiter %d was served in place %d", got, i)
		}
	}
}

func waitEnds(t *testing.T, fleet Fleet) {
	a, b := fleet.New(t), fleet.New(t)
	key := newKey(t)
	lock := try(t, a, key)
	for _, l := range []sqllock.Locker{a, b} {
		ctx, cancel := context.WithCancel(t.Context())
		waiter := lockLater(ctx, l, key)
		cancel()
		if g := <-waiter; !errors.Is(g.err, context.Canceled) || g.lock != nil {
			t.Errorf("Lock whose context was cancelled: %v, %v", g.lock, g.err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		if g := <-lockLater(ctx, l, key); !errors.Is(g.err, context.DeadlineExceeded) {
			t.Errorf("Lock whose deadline passed: %v", g.err)
		}
		cancel()
	}
	release(t, lock)
	release(t, try(t, b, key))
}

// cancelled: callers that give up at any moment leave no lock behind, and do
// not end the locks of other callers.
func cancelled(t *testing.T, fleet Fleet) {
	a, b := fleet.New(t), fleet.New(t)
	bystander := try(t, a, newKey(t))
	keys := []sqllock.Key{newKey(t), newKey(t), newKey(t)}
	var wg sync.WaitGroup
	for i := range fleet.rounds(100, 1000) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
			defer cancel()
			take := a.TryLock
			if i%2 == 0 {
				take = a.Lock
			}
			if lock, err := take(ctx, keys[i%len(keys)]); err == nil {
				_ = lock.Unlock()
			}
		})
	}
	wg.Wait()
	for _, key := range keys {
		release(t, await(t, lockLater(t.Context(), b, key)))
	}
	if err := bystander.Err(); err != nil {
		t.Errorf("a lock that cancelled calls had nothing to do with: %v", err)
	}
	release(t, bystander)
}

// contention: many callers of several processes contend for one key. The
// counter that checks them does not rely on the lock.
func contention(t *testing.T, fleet Fleet) {
	key, rounds := newKey(t), fleet.rounds(3, 30)
	var (
		wg     sync.WaitGroup
		inside atomic.Int32
		grants atomic.Int32
	)
	for i := range 3 {
		l := fleet.New(t)
		for j := range 8 {
			wg.Go(func() {
				for range rounds {
					take := l.TryLock
					if (i+j)%2 == 0 {
						take = l.Lock
					}
					lock, err := take(t.Context(), key)
					if errors.Is(err, sqllock.ErrHeld) {
						continue
					}
					if err != nil {
						t.Errorf("taking: %v", err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d hold one key", n)
					}
					grants.Add(1)
					inside.Add(-1)
					if err := lock.Unlock(); err != nil {
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
	}
	wg.Wait()
	if int(grants.Load()) < 12*rounds { // every call that waits gets it
		t.Errorf("%d grants", grants.Load())
	}
}
