package sqllock

import (
	"context"
	"errors"
	"testing"
)

func mustRead(t *testing.T, s *Session, key Key) *Lock {
	t.Helper()
	lock, err := s.TryRLock(background, key)
	if err != nil {
		t.Fatalf("TryRLock: %v", err)
	}
	return lock
}

// The readers of a process share one lock in the database. The last of them gives
// it back.
func TestReadersShare(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		var readers []*Lock
		for range 100 {
			readers = append(readers, mustRead(t, s, ID(1)))
		}
		if n := len(server.session(0).sent()); n != 1 || s.Stats().Held != 1 {
			t.Errorf("%d statements for 100 readers, %d locks held in the database, want 1 and 1", n, s.Stats().Held)
		}
		_, err := s.TryLock(background, ID(1))
		wantErr(t, "who wants it alone", called{err: err}, ErrHeld)
		for _, l := range readers[1:] {
			mustUnlock(t, l)
		}
		if n := len(server.session(0).sent()); n != 1 || readers[0].Err() != nil {
			t.Errorf("%d statements while one reads on, whose Err is %v", n, readers[0].Err())
		}
		mustUnlock(t, readers[0])
		mustUnlock(t, mustTry(t, s, ID(1)))
	})
}

// Later readers do not overtake a waiter for the exclusive lock. They continue
// when that waiter gives up.
func TestReadersDoNotOvertake(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		first := mustRead(t, s, ID(1))
		ctx, cancel := context.WithCancel(background)
		alone := begin(func() (*Lock, error) { return s.Lock(ctx, ID(1)) })
		pending(t, "who wants it alone", alone)
		_, err := s.TryRLock(background, ID(1))
		wantErr(t, "a reader who tries", called{err: err}, ErrHeld)
		later := begin(func() (*Lock, error) { return s.RLock(background, ID(1)) })
		latest := begin(func() (*Lock, error) { return s.RLock(background, ID(1)) })
		pending(t, "a reader who waits", later)
		cancel()
		wantErr(t, "who gave up", returned(t, "Lock", alone), context.Canceled)
		readers := []*Lock{first, returned(t, "RLock", later).lock, returned(t, "RLock", latest).lock}
		alone = begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
		for _, l := range readers {
			pending(t, "who wants it alone", alone)
			mustUnlock(t, l)
		}
		got := returned(t, "Lock", alone)
		wantErr(t, "who wants it alone", got, nil)
		readsAgain := begin(func() (*Lock, error) { return s.RLock(background, ID(1)) })
		pending(t, "a reader beside who has it alone", readsAgain)
		mustUnlock(t, got.lock)
		wantErr(t, "a reader after him", returned(t, "RLock", readsAgain), nil)
	})
}

// A reader is not denied with the request for the exclusive lock ahead of it.
// Readers of another process exclude that request, and not the reader.
func TestReaderJoinsAQuestion(t *testing.T) {
	for _, sent := range []bool{true, false} { // the request ahead is under way, or queued
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			other, err := Open(background, s.db, withFake(server), withoutLog())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			elsewhere := mustRead(t, other, ID(1))
			hook, resume := hold(t)
			server.session(0).hooks(hook, nil)
			if !sent {
				beginTry(background, s, ID(2))
			}
			alone := beginTry(background, s, ID(1))
			reads := begin(func() (*Lock, error) { return s.TryRLock(background, ID(1)) })
			resume()
			wantErr(t, "TryLock", returned(t, "TryLock", alone), ErrHeld)
			reader := returned(t, "TryRLock", reads)
			wantErr(t, "the reader", reader, nil)
			mustUnlock(t, reader.lock)
			mustUnlock(t, elsewhere)
		})
	}
}

// If the database has no shared locks, RLock and TryRLock return an error at
// once, and other calls go on.
func TestNoReaders(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.withoutReaders = true
		_, err := s.TryRLock(background, ID(1))
		wantErr(t, "TryRLock", called{err: err}, errors.ErrUnsupported)
		_, err = s.RLock(background, ID(1))
		wantErr(t, "RLock", called{err: err}, errors.ErrUnsupported)
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		blocker := beginTry(background, s, ID(9))
		reads := begin(func() (*Lock, error) { return s.RLock(background, ID(1)) })
		reads2 := begin(func() (*Lock, error) { return s.RLock(background, ID(1)) })
		alone := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
		resume()
		wantErr(t, "blocker", returned(t, "TryLock", blocker), nil)
		wantErr(t, "RLock", returned(t, "RLock", reads), errors.ErrUnsupported)
		wantErr(t, "RLock", returned(t, "RLock", reads2), errors.ErrUnsupported)
		wantErr(t, "Lock", returned(t, "Lock", alone), nil)
	})
}
