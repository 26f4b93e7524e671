package lockertest

import (
	"context"
	"errors"
	"sync"
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

// waits: a call that waits gets the key when its holder releases it, in the
// same process and in another one.
func waits(t *testing.T, fleet Fleet) {
	holder := fleet.New(t)
	for _, waiter := range []sqllock.Locker{holder, fleet.New(t)} {
		key := newKey(t)
		lock := try(t, holder, key)
		waiting := lockLater(t.Context(), waiter, key)
		Eventually(t, "the waiter is in line", func() bool { return fleet.InLine(waiter) == 1 })
		if len(waiting) != 0 {
			t.Fatal("Lock of a held key returned")
		}
		release(t, lock)
		release(t, await(t, waiting))
		release(t, try(t, holder, key))
	}
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
	close(order)
	want := 0
	for got := range order {
		if got != want {
			t.Fatalf("waiter %d was served in place %d", got, want)
		}
		want++
	}
}

// waitEnds: a call that waits returns when its context ends, and leaves nothing
// behind. A call whose context has ended already does nothing.
func waitEnds(t *testing.T, fleet Fleet) {
	a, b := fleet.New(t), fleet.New(t)
	key := newKey(t)
	ended, end := context.WithCancel(t.Context())
	end()
	for range 100 {
		for _, take := range []func(context.Context, sqllock.Key) (*sqllock.Lock, error){a.TryLock, a.Lock} {
			if _, err := take(ended, key); !errors.Is(err, context.Canceled) {
				t.Fatalf("a call with an ended context: %v, want context.Canceled", err)
			}
		}
	}
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
