package simulation

import (
	"context"
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

func beginRead(ctx context.Context, s *sqllock.Session, key sqllock.Key) <-chan called {
	return begin(func() (sqllock.Locks, error) { return one(s.RLock(ctx, key)) })
}

// The readers of a process share one lock in the database. The last of them gives
// it back.
func TestReadersShare(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		var readers sqllock.Locks
		for range 100 {
			readers = append(readers, mustRead(t, s, sqllock.ID(1)))
		}
		if n := len(st.conn(0).sent()); n != 1 || s.Stats().Held != 1 {
			t.Errorf("%d statements for 100 readers, %d locks held in the database, want 1 and 1", n, s.Stats().Held)
		}
		wantErr(t, "TryLock beside readers", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrHeld)
		for _, l := range readers[1:] {
			mustUnlock(t, l)
		}
		if n := len(st.conn(0).sent()); n != 1 || readers[0].Err() != nil {
			t.Errorf("%d statements while one reads on, whose Err is %v", n, readers[0].Err())
		}
		mustUnlock(t, readers[0])
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
	})
}

// Later readers do not overtake a waiter for the exclusive lock. They continue
// when that waiter gives up.
func TestReadersDoNotOvertake(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, _ *stage) {
		first := mustRead(t, s, sqllock.ID(1))
		ctx, cancel := context.WithCancel(background)
		alone := beginLock(ctx, s, sqllock.ID(1))
		pending(t, "Lock", alone)
		wantErr(t, "TryRLock", second(s.TryRLock(background, sqllock.ID(1))), sqllock.ErrHeld)
		later, latest := beginRead(background, s, sqllock.ID(1)), beginRead(background, s, sqllock.ID(1))
		pending(t, "RLock", later)
		cancel()
		wantReturned(t, "the waiter that gave up", alone, context.Canceled)
		readers := sqllock.Locks{first, granted(t, "RLock", later), granted(t, "RLock", latest)}
		alone = beginLock(background, s, sqllock.ID(1))
		again := beginRead(background, s, sqllock.ID(1))
		for _, l := range readers {
			pending(t, "Lock", alone)
			mustUnlock(t, l)
		}
		holder := granted(t, "Lock", alone)
		pending(t, "RLock beside the exclusive lock", again)
		mustUnlock(t, holder)
		granted(t, "RLock after it", again)
	})
}

// A reader is not denied with the request for the exclusive lock ahead of it.
// Readers of another process exclude that request, and not the reader.
func TestReaderIsNotDeniedWithAWriter(t *testing.T) {
	for _, sent := range []bool{true, false} { // the request ahead is under way, or queued
		scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			elsewhere := mustRead(t, st.another(t), sqllock.ID(1))
			hook, resume := hold(t)
			st.conn(0).hooks(hook, nil)
			if !sent {
				beginTry(background, s, sqllock.ID(2))
			}
			alone := beginTry(background, s, sqllock.ID(1))
			reads := begin(func() (sqllock.Locks, error) { return one(s.TryRLock(background, sqllock.ID(1))) })
			resume()
			wantReturned(t, "TryLock", alone, sqllock.ErrHeld)
			mustUnlock(t, granted(t, "TryRLock", reads))
			mustUnlock(t, elsewhere)
		})
	}
}

// If the database has no shared locks, calls of readers return an error at once,
// and other calls go on.
func TestNoReaders(t *testing.T) {
	script{noReaders: true}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		wantErr(t, "TryRLock", second(s.TryRLock(background, sqllock.ID(1))), errors.ErrUnsupported)
		wantErr(t, "RLock", second(s.RLock(background, sqllock.ID(1))), errors.ErrUnsupported)
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
	})
}
