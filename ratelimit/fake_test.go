package ratelimit_test

import (
	"context"
	"slices"
	"sync"
	"testing"
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

// A journal is an Observer that records its events.
type journal struct {
	mu      sync.Mutex // protects entries
	entries []entry
}

type entry struct {
	event string
	d     time.Duration
	err   error
}

func (j *journal) add(event string, d time.Duration, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{event, d, err})
}

func (j *journal) observer() ratelimit.Observer {
	return ratelimit.Observer{
		Admitted:   func() { j.add("admitted", 0, nil) },
		Refused:    func(err error) { j.add("refused", 0, err) },
		FailedOpen: func(err error) { j.add("failed open", 0, err) },
		Waited:     func(d time.Duration) { j.add("waited", d, nil) },
		Released:   func(d time.Duration) { j.add("released", d, nil) },
		Lost:       func(d time.Duration) { j.add("lost", d, nil) },
	}
}

// events returns the events so far, in order.
func (j *journal) events() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var events []string
	for _, e := range j.entries {
		events = append(events, e.event)
	}
	return events
}

// last returns the last entry for event.
func (j *journal) last(t *testing.T, event string) entry {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range slices.Backward(j.entries) {
		if e.event == event {
			return e
		}
	}
	t.Fatalf("the Observer has not heard of %q", event)
	return entry{}
}
