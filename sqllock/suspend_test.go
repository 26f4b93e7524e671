package sqllock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// suspended is an option for a Session on a machine that has been suspended for
// asleep in all. The boot clock is ahead of the monotonic clock by that time.
func suspended(asleep *atomic.Int64) Option {
	return func(o *options) {
		o.bootTime = func() time.Duration { return now() + time.Duration(asleep.Load()) }
	}
}

// A process whose machine was suspended past the lease sees the loss as soon as
// it calls Err, before any timer has fired and before a response.
func TestSuspend(t *testing.T) {
	var asleep atomic.Int64
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		lock := mustTry(t, s, ID(1))
		bound, cancel := lock.Bind(t.Context())
		defer cancel()

		validFor := s.options.validFor()
		asleep.Add(int64(validFor - 1))
		if err := lock.Err(); err != nil {
			t.Fatalf("Err after a suspend that ends just before the deadline: %v", err)
		}
		asleep.Add(1)
		if err := bound.Err(); err == nil {
			t.Error("Err of a bound context is nil after a suspend past the lease")
		}
		if err := lock.Err(); err != ErrLost {
			t.Errorf("Err after a suspend past the lease: %v, want ErrLost", err)
		}
		if err := lock.Unlock(); err != ErrLost {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		time.Sleep(ticks)
		mustUnlock(t, mustTry(t, s, ID(1)))
	}, suspended(&asleep))
}

// The lease counts from the moment at which the statement was sent, by the boot
// clock as well. The server may count from then.
func TestSuspendAfterSlowResponse(t *testing.T) {
	var asleep atomic.Int64
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		const slow = 500 * time.Millisecond
		server.session(0).hooks(nil, func() error { time.Sleep(slow); return nil })
		lock := mustTry(t, s, ID(1))
		asleep.Add(int64(s.options.validFor() - slow - 1))
		if err := lock.Err(); err != nil {
			t.Fatalf("Err just before the deadline: %v", err)
		}
		asleep.Add(1)
		if err := lock.Err(); err != ErrLost {
			t.Errorf("Err at the deadline: %v, want ErrLost", err)
		}
	}, suspended(&asleep))
}

// No reader joins readers whose lock a suspend has ended. Unlock returns ErrLost
// to each of them, even if it is not the last one and sends no statement.
func TestReadersAfterSuspend(t *testing.T) {
	var asleep atomic.Int64
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		mustRead(t, s, ID(1))
		asleep.Add(int64(s.options.validFor()))
		if lock, err := s.TryRLock(background, ID(1)); err == nil && lock.Err() != nil {
			t.Errorf("a reader got a lock whose Err is %v", lock.Err())
		}
		time.Sleep(ticks)

		readers := []*Lock{mustRead(t, s, ID(2)), mustRead(t, s, ID(2))}
		asleep.Add(int64(s.options.validFor()))
		for i, l := range readers {
			if err := l.Unlock(); err != ErrLost {
				t.Errorf("reader %d: Unlock: %v, want ErrLost", i, err)
			}
		}
		time.Sleep(ticks)
		alone := mustTry(t, s, ID(2))
		if readers[0].Unlock() != ErrLost || alone.Err() != nil {
			t.Error("a reader from before the loss has released the lock of the next holder")
		}
		mustUnlock(t, alone)
	}, suspended(&asleep))
}

// Suspends that are shorter than the lease cost no lock if heartbeats come in
// between.
func TestShortSuspends(t *testing.T) {
	var asleep atomic.Int64
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		lock := mustTry(t, s, ID(1))
		for range 20 {
			asleep.Add(int64(s.options.validFor() - s.options.heartbeat - time.Second))
			synctest.Wait()
			time.Sleep(s.options.heartbeat + time.Second/2)
			if err := lock.Err(); err != nil {
				t.Fatalf("Err: %v", err)
			}
		}
		if n := s.Stats().Losses; n != 0 {
			t.Errorf("%d losses", n)
		}
		mustUnlock(t, lock)
	}, suspended(&asleep))
}
