package databases

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A traffic is callers of several lockers that contend for a few keys, while a
// test disturbs what is between them and the database.
type traffic struct {
	t       *testing.T
	lockers []sqllock.Locker
	grants  []atomic.Int64 // of each locker
	failed  []atomic.Int64 // calls of each locker
	news    bool           // the server may end a session before its holders are told
	ctx     context.Context
	stop    context.CancelFunc
	callers sync.WaitGroup

	mu      sync.Mutex // protects holders
	holders map[sqllock.Key]*sqllock.Lock
}

// startTraffic starts callers. If news is true, two holders of one key count as
// an error only if neither is told (docs/decisions/0007).
func startTraffic(t *testing.T, news bool, lockers ...sqllock.Locker) *traffic {
	t.Helper()
	tr := &traffic{
		t: t, lockers: lockers, grants: make([]atomic.Int64, len(lockers)), failed: make([]atomic.Int64, len(lockers)),
		news: news, holders: make(map[sqllock.Key]*sqllock.Lock),
	}
	tr.ctx, tr.stop = context.WithCancel(t.Context())
	for l := range lockers {
		for i := range 6 {
			tr.callers.Go(func() { tr.call(l, sqllock.ID(int64(100+i%3))) })
		}
	}
	t.Cleanup(tr.end)
	tr.flows("before the disturbance")
	return tr
}

// call takes key again and again. A call that fails is made again.
func (tr *traffic) call(l int, key sqllock.Key) {
	for try := 0; tr.ctx.Err() == nil; try++ {
		take := tr.lockers[l].Lock
		if try%4 == 3 {
			take = tr.lockers[l].TryLock
		}
		lock, err := take(tr.ctx, key)
		if err != nil {
			if !errors.Is(err, sqllock.ErrHeld) && tr.ctx.Err() == nil {
				tr.failed[l].Add(1)
				pause(tr.ctx, 20*time.Millisecond)
			}
			continue
		}
		tr.enter(key, lock)
		tr.grants[l].Add(1)
		pause(tr.ctx, rand.N(10*time.Millisecond)) // the caller's work
		tr.mu.Lock()
		if tr.holders[key] == lock {
			delete(tr.holders, key)
		}
		tr.mu.Unlock()
		_ = lock.Unlock() // its error depends on the disturbance
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// enter notes a grant, and checks that no other lock of the key is held.
func (tr *traffic) enter(key sqllock.Key, lock *sqllock.Lock) {
	tr.mu.Lock()
	other := tr.holders[key]
	tr.holders[key] = lock
	tr.mu.Unlock()
	overlaps := func() bool { return other != nil && other.Err() == nil && lock.Err() == nil }
	for deadline := time.Now().Add(soon); overlaps(); time.Sleep(time.Millisecond) {
		if !tr.news || time.Now().After(deadline) {
			tr.t.Error("a key is held twice, and neither holder is told")
			return
		}
	}
}

// flows waits until each locker is granted locks again.
func (tr *traffic) flows(when string) {
	tr.t.Helper()
	for l := range tr.lockers {
		before := tr.grants[l].Load()
		lockertest.Eventually(tr.t, "callers are served "+when, func() bool { return tr.grants[l].Load() >= before+2 })
	}
}

// end stops the callers.
func (tr *traffic) end() {
	tr.stop()
	tr.callers.Wait()
}

// losses returns the losses of all Sessions.
func (tr *traffic) losses() (n uint64) {
	for _, l := range tr.lockers {
		if s, ok := l.(*sqllock.Session); ok {
			n += s.Stats().Losses
		}
	}
	return n
}
