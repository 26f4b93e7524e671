package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A fakeLocker returns the results of its funcs. It cannot acquire one of
// several keys.
type fakeLocker struct {
	tryLock func(context.Context, sqllock.Key) (*sqllock.Lock, error)
	lock    func(context.Context, sqllock.Key) (*sqllock.Lock, error)
}

func (f fakeLocker) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	return f.tryLock(ctx, key)
}

func (f fakeLocker) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	return f.lock(ctx, key)
}

// failing is a Locker whose tries end with err.
func failing(err error) fakeLocker {
	fail := func(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, err }
	return fakeLocker{tryLock: fail, lock: fail}
}

// waiting is a Locker whose keys other processes hold for ever. If err is not
// nil, the database has failed with err since then. A try finds its key held,
// and a wait lasts until its context ends.
func waiting(err error) fakeLocker {
	return fakeLocker{tryLock: failing(sqllock.ErrHeld).tryLock, lock: ending(err)}
}

// ending waits for the end of its context. Its error matches err, too.
func ending(err error) func(context.Context, sqllock.Key) (*sqllock.Lock, error) {
	return func(ctx context.Context, _ sqllock.Key) (*sqllock.Lock, error) {
		<-ctx.Done()
		if err == nil {
			return nil, ctx.Err()
		}
		return nil, joined{err, ctx.Err()}
	}
}

// joined matches both of its errors, in one line of text.
type joined [2]error

func (j joined) Error() string   { return j[0].Error() + ": " + j[1].Error() }
func (j joined) Unwrap() []error { return j[:] }

// onlyOne hides all methods of a Locker but the interface's.
type onlyOne struct{ sqllock.Locker }

// must acquires a lock for id, which must be free, until the test ends.
func must(t *testing.T, l *ratelimit.Limiter, id string) *sqllock.Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), id)
	if err != nil {
		t.Fatalf("Acquire: %v, want a lock", err)
	}
	if lock == nil {
		t.Fatal("Acquire: a nil lock, want one that is held")
	}
	t.Cleanup(func() { _ = lock.Unlock() })
	return lock
}

// fill acquires n locks of id, which must be free.
func fill(t *testing.T, l *ratelimit.Limiter, id string, n int) (held []*sqllock.Lock) {
	t.Helper()
	for range n {
		held = append(held, must(t, l, id))
	}
	return held
}

// unlock releases lock, which must succeed.
func unlock(t *testing.T, lock *sqllock.Lock) {
	t.Helper()
	if err := lock.Unlock(); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

// A result is that of one Acquire or AcquireAll.
type result struct {
	locks sqllock.Locks
	err   error
	took  time.Duration
}

// acquire calls Acquire in a goroutine, and returns once that waits or has
// ended.
func acquire(ctx context.Context, l *ratelimit.Limiter, id string) <-chan result {
	return begin(func() (sqllock.Locks, error) {
		lock, err := l.Acquire(ctx, id)
		return sqllock.Locks{lock}, err
	})
}

// stacked is acquire for AcquireAll.
func stacked(ctx context.Context, levels ...ratelimit.Level) <-chan result {
	return begin(func() (sqllock.Locks, error) { return ratelimit.AcquireAll(ctx, levels...) })
}

func begin(call func() (sqllock.Locks, error)) <-chan result {
	c := make(chan result, 1)
	go func() {
		began := time.Now()
		locks, err := call()
		c <- result{locks, err, time.Since(began)}
	}()
	synctest.Wait()
	return c
}

// end releases the locks of got, which must have them.
func end(t *testing.T, got result) {
	t.Helper()
	if got.err != nil || slices.Contains(got.locks, nil) {
		t.Fatalf("got %v, %v; want locks", got.locks, got.err)
	}
	if err := got.locks.Unlock(); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

// A journal keeps the events that its Observer gets.
type journal struct {
	mu      sync.Mutex // protects entries
	entries []ratelimit.Event
}

func (j *journal) observe(_ context.Context, e ratelimit.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e)
}

// results returns the results of the events so far, in order.
func (j *journal) results() []ratelimit.Result {
	j.mu.Lock()
	defer j.mu.Unlock()
	var results []ratelimit.Result
	for _, e := range j.entries {
		results = append(results, e.Result)
	}
	return results
}

// last returns the last event with this result.
func (j *journal) last(t *testing.T, result ratelimit.Result) ratelimit.Event {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range slices.Backward(j.entries) {
		if e.Result == result {
			return e
		}
	}
	t.Fatalf("the Observer has not heard of %q", result)
	return ratelimit.Event{}
}

// agree reports where stats are not the sums of the events, or do not agree
// with each other.
func (j *journal) agree(t *testing.T, stats ratelimit.Stats) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	counts := make(map[ratelimit.Result]uint64)
	waits, ends := uint64(0), uint64(0)
	var waited, held time.Duration
	for _, e := range j.entries {
		counts[e.Result]++
		waited += e.Waited
		held += e.Held
		if e.Waited > 0 {
			waits++
		}
		if e.Result == ratelimit.Released || e.Result == ratelimit.Lost {
			ends++
			if lost := e.Result == ratelimit.Lost; lost != errors.Is(e.Err, sqllock.ErrLost) {
				t.Errorf("%s with the error %v", e.Result, e.Err)
			}
		}
	}
	for result, n := range stats.Requests {
		if n != counts[result] {
			t.Errorf("%d requests are %s, the Observer heard of %d", n, result, counts[result])
		}
	}
	if len(stats.Requests) != 9 {
		t.Errorf("%d results, want 9", len(stats.Requests))
	}
	if n := uint64(stats.Active) + stats.Requests[ratelimit.Released] + stats.Requests[ratelimit.Lost]; n != stats.Requests[ratelimit.Admitted] {
		t.Errorf("%d admitted, %d active, released or lost", stats.Requests[ratelimit.Admitted], n)
	}
	if stats.TimeInQueue.Count != waits || !about(stats.TimeInQueue.Sum, waited) {
		t.Errorf("%d waits of %vs, the Observer heard of %d of %v", stats.TimeInQueue.Count, stats.TimeInQueue.Sum, waits, waited)
	}
	if stats.LeaseDuration.Count != ends || !about(stats.LeaseDuration.Sum, held) {
		t.Errorf("%d holds of %vs, the Observer heard of %d of %v", stats.LeaseDuration.Count, stats.LeaseDuration.Sum, ends, held)
	}
}

// about reports whether seconds are d, apart from rounding.
func about(seconds float64, d time.Duration) bool {
	return math.Abs(seconds-d.Seconds()) < 1e-6
}
