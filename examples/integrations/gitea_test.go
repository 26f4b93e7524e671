package integrations_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/examples/integrations/gitealock"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// gitea has the cases in which Gitea tests its lockers, which it does not export,
// in our words. The processes are two, or the same one twice.
func gitea(t *testing.T, first, second *sqllock.Session) {
	ctx := t.Context()
	a, b := gitealock.New(first, "test"), gitealock.New(second, "test")
	lock := func(l *gitealock.Locker) gitealock.ReleaseFunc { return must(l.Lock(ctx, "key")) }
	try := func(l *gitealock.Locker, want bool) gitealock.ReleaseFunc {
		t.Helper()
		ok, release, err := l.TryLock(ctx, "key")
		if ok != want || err != nil {
			t.Errorf("TryLock: %v, %v; want %v", ok, err, want)
		}
		return release
	}
	waits := func() { // a call of b.Lock
		t.Helper()
		lockertest.Eventually(t, "a caller waits", func() bool { return second.Stats().Waiting == 1 })
	}

	// Lock gives up when its context ends. Its release does nothing then, nor does
	// that of a TryLock without success.
	release := lock(a)
	short, cancel := context.WithCancel(ctx)
	gaveUp := make(chan error)
	go func() {
		release, err := b.Lock(short, "key")
		release()
		gaveUp <- err
	}()
	waits()
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("Lock with a context that ends: %v", err)
	}
	try(b, false)()
	try(b, false)
	release()

	// TryLock gets what was released.
	try(b, true)()

	// Lock waits for a release.
	release = try(a, true)
	var released atomic.Bool
	acquired := make(chan gitealock.ReleaseFunc)
	go func() {
		release, err := b.Lock(ctx, "key")
		if err != nil || !released.Load() {
			t.Errorf("Lock returned before the release (%v): %v", released.Load(), err)
		}
		acquired <- release
	}()
	waits()
	released.Store(true)
	release()
	(<-acquired)()

	// A second release does not release the lock of the next holder.
	release = lock(a)
	release()
	next := lock(b)
	release()
	try(a, false)
	next()

	// A closed Session is an error, as a Redis that is gone.
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	release, err := b.Lock(ctx, "key")
	release()
	ok, release, tried := b.TryLock(ctx, "key")
	if release(); ok || !errors.Is(err, sqllock.ErrClosed) || !errors.Is(tried, sqllock.ErrClosed) {
		t.Errorf("Lock: %v; TryLock: %v, %v", err, ok, tried)
	}
}
