package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var background = context.Background()

// While one statement is in flight, others queue up and go together, releases
// first.
func TestGroupCommit(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		first := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		db.hooks(hook, nil)
		var calls []<-chan called
		calls = append(calls, beginTry(background, s, ID(2)))
		unlocked := beginUnlock(first)
		for i := range 50 {
			calls = append(calls, beginTry(background, s, ID(int64(10+i))))
		}
		again := beginTry(background, s, ID(1)) // takes over the release that is not sent yet
		got := returned(t, "TryLock of a key whose release waits", again)
		wantErr(t, "TryLock of a key whose release waits", got, nil)
		wantErr(t, "the Unlock that was taken over", returned(t, "Unlock", unlocked), nil)
		released := beginUnlock(got.lock)
		resume()
		for _, c := range calls {
			wantErr(t, "TryLock", returned(t, "TryLock", c), nil)
		}
		wantErr(t, "Unlock", returned(t, "Unlock", released), nil)
		batches := db.sent()
		if len(batches) != 3 {
			t.Fatalf("%d statements, want 3: %v", len(batches), batches)
		}
		if last := batches[2]; len(last.Try) != 50 || len(last.Release) != 1 {
			t.Errorf("the third statement took %d and released %d, want 50 and 1", len(last.Try), len(last.Release))
		}
	})
}

// A TryLock that meets a release in flight is in the next statement.
func TestTryLockMeetsRelease(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		lock := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		db.hooks(nil, hook)
		unlocked := beginUnlock(lock)
		next := beginTry(background, s, ID(1))
		pending(t, "Unlock", unlocked)
		pending(t, "TryLock", next)
		resume()
		wantErr(t, "Unlock", returned(t, "Unlock", unlocked), nil)
		wantErr(t, "TryLock", returned(t, "TryLock", next), nil)
		if n := len(db.sent()); n != 3 {
			t.Errorf("%d statements, want 3", n)
		}
	})
}

// A TryLock that meets an ask in flight for its key gets the grant if who asked
// has given up. A refusal may be older than the call: it is asked for again, once
// for all who came meanwhile.
func TestTryLockJoins(t *testing.T) {
	tests := []struct {
		name               string
		heldElsewhere      bool
		giveUp             bool
		first, second      error
		third              error
		statements, locked int
	}{
		{"granted", false, false, nil, ErrHeld, ErrHeld, 1, 1},
		{"held elsewhere", true, false, ErrHeld, ErrHeld, ErrHeld, 2, 1},
		{"given up", false, true, context.Canceled, nil, ErrHeld, 1, 1},
		{"given up and held elsewhere", true, true, context.Canceled, ErrHeld, ErrHeld, 2, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				db := server.session(0)
				if tt.heldElsewhere {
					server.steal(ID(1))
				}
				hook, resume := hold(t)
				db.hooks(hook, nil)
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				first := beginTry(ctx, s, ID(1))
				second := beginTry(background, s, ID(1))
				third := beginTry(background, s, ID(1))
				if tt.giveUp {
					cancel()
					wantErr(t, "who gave up", returned(t, "first", first), tt.first)
				}
				pending(t, "who joined", second)
				resume()
				if !tt.giveUp {
					wantErr(t, "first", returned(t, "first", first), tt.first)
				}
				wantErr(t, "second", returned(t, "second", second), tt.second)
				wantErr(t, "third", returned(t, "third", third), tt.third)
				if n := len(db.sent()); n != tt.statements {
					t.Errorf("%d statements, want %d", n, tt.statements)
				}
				if n := server.held(); n != tt.locked {
					t.Errorf("%d locks in the database, want %d", n, tt.locked)
				}
			})
		})
	}
}

// A grant that nobody wants any more is given back.
func TestLateGrantIsGivenBack(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		ctx, cancel := context.WithCancel(background)
		c := beginTry(ctx, s, ID(1))
		several := begin(func() (*Lock, error) { return s.TryAny(ctx, ID(2), ID(3)) })
		cancel()
		wantErr(t, "TryLock", returned(t, "TryLock", c), context.Canceled)
		wantErr(t, "TryAny", returned(t, "TryAny", several), context.Canceled)
		resume()
		synctest.Wait()
		if n := server.held(); n != 0 {
			t.Errorf("%d locks are left in the database", n)
		}
		if got := s.Stats(); got.Held != 0 || s.table.keys.len() != 0 {
			t.Errorf("the table still holds %d and knows %d", got.Held, s.table.keys.len())
		}
	})
}

// An idle session speaks once a heartbeat; traffic stands in for it.
func TestHeartbeat(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		count := func() int {
			db.mu.Lock()
			defer db.mu.Unlock()
			return len(db.batches)
		}
		time.Sleep(time.Minute)
		if n := count(); n < 29 || n > 30 {
			t.Errorf("%d heartbeats in an idle minute, want 30", n)
		}
		for range 60 {
			mustUnlock(t, mustTry(t, s, ID(1)))
			time.Sleep(time.Second)
		}
		if n := count() - 30; n > 121 {
			t.Errorf("%d statements for 120 of traffic", n)
		}
		lock := mustTry(t, s, ID(1))
		time.Sleep(time.Hour)
		if err := lock.Err(); err != nil {
			t.Errorf("Err after an idle hour: %v", err)
		}
	}, WithHeartbeat(2*time.Second))
}

// Waiters of a process hand a key on for a second; then it goes through the
// database, and they stay away for others to come.
func TestHandOverYields(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		statements := len(server.session(0).sent())
		for i := range 20 {
			next := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
			time.Sleep(100 * time.Millisecond)
			before := time.Now()
			mustUnlock(t, lock)
			got := <-next
			wantErr(t, "Lock", got, nil)
			lock = got.lock
			away := time.Since(before)
			n := len(server.session(0).sent()) - statements
			if second := i%10 == 9; !second && (away != 0 || n != 0) {
				t.Errorf("hand-over %d took %v and %d statements, want none", i, away, n)
			} else if second && (away < pollMax || n != 2) {
				t.Errorf("after a second the key was taken again after %v, with %d statements; want %v or more, and 2", away, n, pollMax)
			}
			statements += n
		}
	})
}

// A key that is given back elsewhere while the question about it is in flight is
// not refused to who asks after that.
func TestRefusalIsNotOlderThanTheCall(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		hook, resume := hold(t)
		server.session(0).hooks(nil, hook) // the answer is on its way
		ctx, cancel := context.WithCancel(background)
		first := begin(func() (*Lock, error) { return s.Lock(ctx, ID(1)) })
		cancel()
		wantErr(t, "who gave up", returned(t, "Lock", first), context.Canceled)
		server.giveUp(ID(1))
		second := beginTry(background, s, ID(1))
		resume()
		wantErr(t, "TryLock of a free key", returned(t, "TryLock", second), nil)
	})
}

// Who only tries does not pass those in line, also when the key is free for the
// moment.
func TestTryLockDoesNotPassWaiters(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		waiting := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
		server.giveUp(ID(1))
		if _, err := s.TryLock(background, ID(1)); !errors.Is(err, ErrHeld) {
			t.Errorf("TryLock beside a waiter: %v, want ErrHeld", err)
		}
		time.Sleep(pollMax)
		mustUnlock(t, returned(t, "Lock", waiting).lock)
		mustUnlock(t, mustTry(t, s, ID(1)))
	})
}

// A logger may ask the Session.
func TestLoggerMayCallTheSession(t *testing.T) {
	var session *Session
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		session = s
		server.onOpen = func(n int) error {
			if n < 4 {
				return errGone
			}
			return nil
		}
		server.session(0).hooks(nil, func() error { return errGone })
		_, _ = s.TryLock(background, ID(1))
		time.Sleep(ticks)
		mustUnlock(t, mustTry(t, s, ID(1)))
	}, WithLogger(slog.New(callingHandler{slog.DiscardHandler, func() {
		if session != nil {
			_ = session.Stats()
		}
	}})))
}

// callingHandler calls back for each record.
type callingHandler struct {
	slog.Handler
	call func()
}

func (callingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h callingHandler) Handle(context.Context, slog.Record) error {
	h.call()
	return nil
}

// Of many keys that queue up half go, and the other half while the database
// works: nobody is left behind, and nobody holds what another holds.
func TestHalves(t *testing.T) {
	server := newFakeServer()
	s, err := Open(t.Context(), new(sql.DB), withFake(server), withoutLog())
	if err != nil {
		t.Fatal(err)
	}
	var (
		callers sync.WaitGroup
		holders [400]atomic.Int32
	)
	for caller := range 512 {
		callers.Go(func() {
			for n := range 20 {
				id := (caller + 7*n) % len(holders)
				lock, err := s.TryLock(background, ID(int64(id)))
				if errors.Is(err, ErrHeld) {
					continue
				}
				if err != nil {
					t.Errorf("TryLock: %v", err)
					return
				}
				if holders[id].Add(1) > 1 {
					t.Errorf("key %d is held twice", id)
				}
				runtime.Gosched()
				holders[id].Add(-1)
				if err := lock.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	callers.Wait()
	if got := s.Stats(); got.Held != 0 || s.table.keys.len() != 0 || server.held() != 0 {
		t.Errorf("%d held, %d entries, %d in the database", got.Held, s.table.keys.len(), server.held())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Of a crowd that comes at once each is told, also those behind others for whom
// there was nothing to send. No heartbeat comes to help.
func TestCrowdAtCapacity(t *testing.T) {
	server := newFakeServer()
	s, err := Open(t.Context(), new(sql.DB), withFake(server), withoutLog(), WithMaxHeld(1), WithLease(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	lock := mustTry(t, s, ID(-1))
	for range 20 {
		var callers sync.WaitGroup
		for id := range 512 {
			callers.Go(func() {
				if _, err := s.TryLock(background, ID(int64(id))); !errors.Is(err, ErrCapacity) {
					t.Errorf("TryLock: %v, want ErrCapacity", err)
				}
			})
		}
		told := make(chan struct{})
		go func() { callers.Wait(); close(told) }()
		select {
		case <-told:
		case <-time.After(30 * time.Second):
			t.Fatal("not all callers were told")
		}
	}
	mustUnlock(t, lock)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Two statements pay where callers take longer than the way to the database and
// back.
func TestPace(t *testing.T) {
	var p batchStats
	p.roundTrip = 100 * time.Microsecond
	if p.halves(1000) {
		t.Error("halves, and nothing is known of the callers")
	}
	for range 100 {
		p.observe(100, 100*time.Microsecond)
	}
	tests := []struct {
		callers   int
		roundTrip time.Duration
		want      bool
	}{
		{512, 100 * time.Microsecond, true},
		{512, time.Millisecond, false},
		{50, 100 * time.Microsecond, false},
		{5000, time.Millisecond, true},
	}
	for _, tt := range tests {
		p.roundTrip = tt.roundTrip
		if got := p.halves(tt.callers); got != tt.want {
			t.Errorf("%d callers of 1 µs each, round trip %v: halves is %v", tt.callers, tt.roundTrip, got)
		}
	}
}
