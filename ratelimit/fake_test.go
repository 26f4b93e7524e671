package ratelimit_test

import (
	"context"
	"slices"
	"sync"
	"testing"

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

// away is a Locker over a database that went away after another process
// acquired the key. A try finds it held, and a wait lasts until its context
// ends.
func away() fakeLocker {
	return fakeLocker{
		tryLock: func(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, sqllock.ErrHeld },
		lock: func(ctx context.Context, _ sqllock.Key) (*sqllock.Lock, error) {
			<-ctx.Done()
			return nil, joined{sqllock.ErrUnavailable, ctx.Err()}
		},
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

// unlock releases lock, which must succeed.
func unlock(t *testing.T, lock *sqllock.Lock) {
	t.Helper()
	if err := lock.Unlock(); err != nil {
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
