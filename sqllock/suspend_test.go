package sqllock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// suspended is an option for a system that is suspended for as long as the
// value says: its monotonic clock, the bubble's, stands still then.
func suspended(asleep *atomic.Int64) Option {
	return func(o *options) {
		o.bootTime = func() time.Duration { return now() + time.Duration(asleep.Load()) }
	}
}

// A process whose machine was suspended past the lease sees the loss at its next
// look, before any timer has fired and before it has heard of the server.
func TestSuspend(t *testing.T) {
	var asleep atomic.Int64
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		lock := mustTry(t, s, ID(1))
		bound, cancel := lock.Bind(t.Context())
		defer cancel()

		trust := s.options.validFor()
		asleep.Add(int64(trust - 1))
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

// The lease counts from the moment at which the statement was sent, also by the
// clock that goes on while the machine is suspended. The server may have counted
// from then.
func TestSuspendAfterSlowResponse(t *testing.T) {
	var asleep atomic.Int64
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		const slow = 500 * time.Millisecond
		server.session(0).hooks(nil, func() error { time.Sleep(slow); return nil })
		lock := mustTry(t, s, ID(1))
		trust := s.options.validFor()
		asleep.Add(int64(trust - slow - 1))
		if err := lock.Err(); err != nil {
			t.Fatalf("Err just before the deadline: %v", err)
		}
		asleep.Add(1)
		if err := lock.Err(); err != ErrLost {
			t.Errorf("Err at the deadline: %v, want ErrLost", err)
		}
	}, suspended(&asleep))
}

// Nor is what a suspend has ended handed on to who is in line in this process,
// without the server.
func TestUnlockAfterSuspend(t *testing.T) {
	for _, opt := range [][]Option{nil, {WithAsyncUnlock()}} {
		var asleep atomic.Int64
		simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
			lock := mustTry(t, s, ID(1))
			waiter := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
			pending(t, "Lock", waiter)
			asleep.Add(int64(s.options.validFor()))
			if err := lock.Unlock(); err != ErrLost {
				t.Errorf("Unlock: %v, want ErrLost", err)
			}
			time.Sleep(ticks)
			next := returned(t, "Lock", waiter)
			wantErr(t, "who waited", next, nil)
			if err := next.lock.Err(); err != nil {
				t.Errorf("Err of the next holder: %v", err)
			}
		}, append(opt, suspended(&asleep))...)
	}
}

// Nor does a reader join those whose lock a suspend has ended. Each of those is told by Unlock, also while
// others read on and nothing goes to the server.
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
	}, suspended(&asleep))
}

// Suspends shorter than the lease, with heartbeats in between, cost nothing.
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

// Nobody looks: the loss is noticed by the next heartbeat.
func TestSuspendUnwatched(t *testing.T) {
	var asleep atomic.Int64
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		lock := mustTry(t, s, ID(1))
		work := lock.Context()
		asleep.Add(int64(s.options.lease))
		select {
		case <-work.Done():
		case <-time.After(s.options.heartbeat + time.Millisecond):
			t.Error("the work was not told within a heartbeat")
		}
	}, suspended(&asleep))
}

func TestBootTimeGoesOn(t *testing.T) {
	before, began := bootTime(), now()
	for now()-began < 2*time.Millisecond {
	}
	if before == 0 {
		t.Skip("this system has no such clock")
	}
	if passed := bootTime() - before; passed < 2*time.Millisecond {
		t.Errorf("%v of boot time passed in 2 ms", passed)
	}
}

// The margin makes up for what DESIGN promises: a step of the server's clock of
// σ, the drift of clocks over the lease, and 100 ms for what is late.
func TestMargin(t *testing.T) {
	for lease := minLease; lease <= maxLease; lease += lease / 7 {
		o := newOptions([]Option{WithLease(lease)})
		if err := o.validate(); err != nil {
			t.Fatalf("lease %v: %v", lease, err)
		}
		margin := lease - o.validFor() - time.Duration(clockDrift*float64(lease))
		step := lease / 10
		if margin <= step+time.Duration(clockDrift*float64(lease))+100*time.Millisecond {
			t.Errorf("lease %v: a margin of %v is too little", lease, margin)
		}
		if o.validFor() <= 3*o.heartbeat {
			t.Errorf("lease %v: three heartbeats of %v do not fit", lease, o.heartbeat)
		}
	}
}
