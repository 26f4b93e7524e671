package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
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
		calls = append(calls, beginTry(s, background, ID(2)))
		unlocked := beginUnlock(first)
		for i := range 50 {
			calls = append(calls, beginTry(s, background, ID(int64(10+i))))
		}
		again := beginTry(s, background, ID(1)) // takes over the release that is not sent yet
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
		next := beginTry(s, background, ID(1))
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

// A TryLock that meets an ask in flight for its key gets the ask's answer; if
// who asked has given up, it gets the grant.
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
		{"held elsewhere", true, false, ErrHeld, ErrHeld, ErrHeld, 1, 1},
		{"given up", false, true, context.Canceled, nil, ErrHeld, 1, 1},
		{"given up and held elsewhere", true, true, context.Canceled, ErrHeld, ErrHeld, 1, 1},
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
				first := beginTry(s, ctx, ID(1))
				second := beginTry(s, background, ID(1))
				third := beginTry(s, background, ID(1))
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
		c := beginTry(s, ctx, ID(1))
		any := begin(func() (*Lock, error) { return s.TryAny(ctx, ID(2), ID(3)) })
		cancel()
		wantErr(t, "TryLock", returned(t, "TryLock", c), context.Canceled)
		wantErr(t, "TryAny", returned(t, "TryAny", any), context.Canceled)
		resume()
		synctest.Wait()
		if n := server.held(); n != 0 {
			t.Errorf("%d locks are left in the database", n)
		}
		if got := s.Stats(); got.Held != 0 || len(s.table.entries) != 0 {
			t.Errorf("the table still holds %d and knows %d", got.Held, len(s.table.entries))
		}
	})
}

// Without an answer, calls fail within a second and the locks stay; a grant that
// comes later is given back.
func TestStalledStatement(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		asked := time.Now()
		inFlight := beginTry(s, background, ID(2))
		queued := beginTry(s, background, ID(3))
		unlocking := beginUnlock(lock)
		wantErr(t, "in flight", <-inFlight, ErrUnavailable)
		wantErr(t, "queued", <-queued, ErrUnavailable)
		wantErr(t, "Unlock", <-unlocking, ErrUnavailable)
		if waited := time.Since(asked); waited > time.Second {
			t.Errorf("failed after %v, want within a second", waited)
		}
		wantErr(t, "while it stalls", returned(t, "TryLock", beginTry(s, background, ID(4))), ErrUnavailable)
		resume()
		synctest.Wait()
		if n := server.held(); n != 0 {
			t.Errorf("%d locks are left in the database", n)
		}
		mustUnlock(t, mustTry(t, s, ID(2)))
		if got := s.Stats().Losses; got != 0 {
			t.Errorf("%d losses", got)
		}
	})
}

// A statement that is not answered for the lease costs every lock, at the
// moment that was counted from the last answered statement's sending.
func TestLeaseRunsOut(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		released := mustTry(t, s, ID(1))
		sent := time.Now()
		lock := mustTry(t, s, ID(2))
		db := server.session(0)
		hook, _ := hold(t)
		db.hooks(nil, hook)
		unlocked := beginUnlock(released)
		<-lock.Context().Done()
		if cause := context.Cause(lock.Context()); cause != ErrLost {
			t.Errorf("cause %v, want ErrLost", cause)
		}
		if got, want := time.Since(sent), s.options.trust(); got != want {
			t.Errorf("lost %v after its statement was sent, want %v", got, want)
		}
		wantErr(t, "Unlock", returned(t, "Unlock", unlocked), ErrUnavailable)
		// It serves again on another connection, though the first is stuck.
		mustUnlock(t, mustTry(t, s, ID(3)))
		if server.opens != 2 {
			t.Errorf("%d connections were opened, want 2", server.opens)
		}
		db.mu.Lock()
		defer db.mu.Unlock()
		if !db.aborted {
			t.Error("the socket under the stuck statement was not closed")
		}
	})
}

// Err decides by the clock: it does not wait for the timer that a process which
// was frozen has not run yet.
func TestErrByTheClock(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		other := mustTry(t, s, ID(2))
		bound, cancel := other.Bind(background)
		defer cancel()
		// As if the clock had moved on while nothing ran.
		lock.lease.deadline.Store(int64(now()))
		if err := lock.Err(); err != ErrLost {
			t.Errorf("Err: %v, want ErrLost", err)
		}
		if bound.Err() == nil || context.Cause(bound) != ErrLost {
			t.Errorf("a bound context of another lock of the connection: %v, cause %v", bound.Err(), context.Cause(bound))
		}
		if err := lock.Unlock(); err != ErrLost {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
	})
}

// A lock that was not there when it was given back ends all of its connection.
func TestUnlockOfWhatIsNotHeld(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		one, other := mustTry(t, s, ID(1)), mustTry(t, s, ID(2))
		server.steal(ID(1))
		if err := one.Unlock(); err != ErrLost {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		synctest.Wait()
		if err := other.Err(); err != ErrLost {
			t.Errorf("Err of another lock of the connection: %v, want ErrLost", err)
		}
		if server.opens != 2 {
			t.Errorf("%d connections were opened, want 2", server.opens)
		}
		mustUnlock(t, mustTry(t, s, ID(2)))
	})
}

// A statement that failed half-way on a session that lives costs no lock: the
// engine asks what it holds.
func TestStatementFailsHalfWay(t *testing.T) {
	failure := &dialect.Failure{Kind: dialect.Full, Reason: "no room"}
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		kept, released := mustTry(t, s, ID(1)), mustTry(t, s, ID(2))
		hook, resume := hold(t)
		db.hooks(hook, nil)
		blocker := beginTry(s, background, ID(3))
		unlocked := beginUnlock(released)
		taken := beginTry(s, background, ID(4)) // the statement takes it before it fails
		var refused <-chan called
		resumed := make(chan struct{})
		db.hooks(nil, func() error {
			db.hooks(nil, nil)
			server.giveUp(ID(5)) // as if this one had not been taken
			close(resumed)
			return failure
		})
		refused = beginTry(s, background, ID(5))
		resume()
		<-resumed
		wantErr(t, "blocker", returned(t, "blocker", blocker), nil)
		wantErr(t, "Unlock", returned(t, "Unlock", unlocked), nil)
		wantErr(t, "what was taken", returned(t, "taken", taken), nil)
		wantErr(t, "what was not", returned(t, "refused", refused), ErrCapacity)
		if err := kept.Err(); err != nil {
			t.Errorf("Err of a lock beside a failed statement: %v", err)
		}
		if got := s.Stats().Losses; got != 0 {
			t.Errorf("%d losses", got)
		}
		mustUnlock(t, kept)
		mustUnlock(t, mustTry(t, s, ID(5)))
	})
}

// A session that does not hold what it should is given up.
func TestStatementFailsAndLocksAreGone(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		server.session(0).hooks(nil, func() error {
			server.giveUp(ID(1))
			return &dialect.Failure{Kind: dialect.Statement, Reason: "failed"}
		})
		if _, err := s.TryLock(background, ID(2)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("TryLock: %v, want ErrUnavailable", err)
		}
		synctest.Wait()
		if err := lock.Err(); err != ErrLost {
			t.Errorf("Err: %v, want ErrLost", err)
		}
	})
}

// Whatever the reply: lost, the connection is, too; nothing of it is resurrected.
func TestReplyLost(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		held, released := mustTry(t, s, ID(1)), mustTry(t, s, ID(2))
		db.hooks(nil, func() error { return errGone })
		if err := released.Unlock(); err != ErrLost {
			t.Errorf("Unlock whose reply was lost: %v, want ErrLost", err)
		}
		synctest.Wait()
		if err := held.Err(); err != ErrLost {
			t.Errorf("Err: %v, want ErrLost", err)
		}
		if n := server.held(); n != 0 {
			t.Errorf("%d locks are left in the database", n)
		}
		server.session(1).hooks(nil, func() error { return errGone })
		if _, err := s.TryLock(background, ID(3)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("TryLock whose reply was lost: %v, want ErrUnavailable", err)
		}
		synctest.Wait()
		mustUnlock(t, mustTry(t, s, ID(3)))
	})
}

// After a failover to what does not exclude, the Session refuses with that, and
// serves when it can again.
func TestReconnectsToWhatDoesNotExclude(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.onOpen = func(n int) error {
			if n < 5 {
				return &dialect.Failure{Kind: dialect.NotExclusive, Reason: "a standby"}
			}
			return nil
		}
		waiting := begin(func() (*Lock, error) { return s.Lock(background, ID(9)) })
		mustUnlock(t, returned(t, "Lock", waiting).lock)
		server.session(0).hooks(nil, func() error { return errGone })
		_, _ = s.TryLock(background, ID(1))
		synctest.Wait()
		if _, err := s.TryLock(background, ID(1)); !errors.Is(err, ErrNotExclusive) {
			t.Errorf("TryLock: %v, want ErrNotExclusive", err)
		}
		waiter := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
		pending(t, "Lock", waiter)
		time.Sleep(ticks)
		wantErr(t, "who waited", returned(t, "Lock", waiter), nil)
	})
}

// Calls made while the Session reconnects wait for it, up to a second.
func TestCallsDuringReconnection(t *testing.T) {
	for _, tt := range []struct {
		takes time.Duration
		want  error
	}{
		{500 * time.Millisecond, nil},
		{3 * time.Second, ErrUnavailable},
	} {
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			server.onOpen = func(int) error { time.Sleep(tt.takes); return nil }
			server.session(0).hooks(nil, func() error { return errGone })
			_, _ = s.TryLock(background, ID(1))
			asked := time.Now()
			_, err := s.TryLock(background, ID(2))
			if !errors.Is(err, tt.want) {
				t.Errorf("TryLock during a reconnection of %v: %v, want %v", tt.takes, err, tt.want)
			}
			if waited := time.Since(asked); waited > time.Second {
				t.Errorf("it took %v", waited)
			}
			time.Sleep(ticks)
			mustTry(t, s, ID(3))
		})
	}
}

// A driver stuck for ever costs a few goroutines at the most, and the Session
// serves when a connection can be had.
func TestStuckReconnections(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		gate := make(chan struct{})
		server.onOpen = func(int) error { <-gate; return nil }
		server.session(0).hooks(nil, func() error { return errGone })
		_, _ = s.TryLock(background, ID(1))
		time.Sleep(10 * time.Minute)
		server.mu.Lock()
		opens := server.opens
		server.onOpen = nil
		server.mu.Unlock()
		if opens > 1+maxStrays {
			t.Errorf("%d attempts are stuck, want %d at the most", opens-1, maxStrays)
		}
		close(gate)
		time.Sleep(ticks)
		mustTry(t, s, ID(1))
		if n := server.held(); n != 1 {
			t.Errorf("%d locks", n)
		}
		for i := 1; i < opens; i++ { // late connections are not left open
			select {
			case <-server.session(i).closed:
			default:
				t.Errorf("connection %d of an attempt given up is open", i)
			}
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

// A connection beyond the first that is not needed any more is closed.
func TestSpareConnectionIsClosed(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		var locks []*Lock
		for i := range heldPerConn + 100 {
			locks = append(locks, mustTry(t, s, ID(int64(i))))
			synctest.Wait()
		}
		if got := s.Stats().Connections; got != 2 {
			t.Fatalf("%d connections, want 2", got)
		}
		for _, l := range locks {
			mustUnlock(t, l)
		}
		time.Sleep(10 * time.Minute)
		if got := s.Stats(); got.Connections != 1 || got.Losses != 0 {
			t.Errorf("%d connections and %d losses after ten idle minutes, want 1 and 0", got.Connections, got.Losses)
		}
		mustUnlock(t, mustTry(t, s, ID(1)))
	})
}

// Several who try for the same slots at once share them in one statement.
func TestSlotsAreShared(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		slots := []Key{ID(1), ID(2), ID(3), ID(4)}
		hook, resume := hold(t)
		db.hooks(hook, nil)
		blocker := beginTry(s, background, ID(99))
		var calls []<-chan called
		for range 6 {
			calls = append(calls, begin(func() (*Lock, error) { return s.TryAny(background, slots...) }))
		}
		resume()
		_ = returned(t, "blocker", blocker)
		granted, refused := 0, 0
		for _, c := range calls {
			switch got := returned(t, "TryAny", c); {
			case got.err == nil:
				granted++
			case errors.Is(got.err, ErrHeld):
				refused++
			default:
				t.Errorf("TryAny: %v", got.err)
			}
		}
		if granted != 4 || refused != 2 {
			t.Errorf("%d granted, %d refused of 4 slots and 6 callers", granted, refused)
		}
		if n := len(db.sent()); n != 2 {
			t.Errorf("%d statements, want 2", n)
		}
	})
}

// TestRandomSchedules lets callers do all there is, on two Sessions of one
// server that loses replies and connections, and checks that nobody holds what
// another holds, and that nothing is left.
func TestRandomSchedules(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { randomSchedule(t, seed) })
	}
}

func randomSchedule(t *testing.T, seed uint64) {
	server := newFakeServer()
	rng := newRandom(seed)
	server.onOpen = func(n int) error {
		time.Sleep(rng.duration(20 * time.Millisecond))
		if n > 2 && rng.oneIn(4) {
			return errGone
		}
		return nil
	}
	var sessions []*Session
	for range 2 {
		s, err := Open(background, new(sql.DB), withFake(server), withoutLog(), WithMaxHeld(6))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sessions = append(sessions, s)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { // the nemesis
		defer wg.Done()
		for {
			select {
			case <-stop:
				return
			case <-time.After(rng.duration(30 * time.Millisecond)):
				server.hurt(rng)
			}
		}
	}()
	holders := newHolders(t, seed)
	var callers sync.WaitGroup
	for range 12 {
		s := sessions[rng.intn(2)]
		callers.Add(1)
		go func() {
			defer callers.Done()
			for range 40 {
				randomCall(rng, s, holders)
			}
		}()
	}
	callers.Wait()
	close(stop)
	wg.Wait()
	server.heal()
	time.Sleep(time.Minute)
	for i, s := range sessions {
		if got := s.Stats(); got.Held != 0 || got.Waiting != 0 || len(s.table.entries) != 0 {
			t.Errorf("seed %d: session %d holds %d, %d wait, %d entries", seed, i, got.Held, got.Waiting, len(s.table.entries))
		}
		mustUnlock(t, mustTry(t, s, ID(1)))
		_ = s.Close()
	}
	if n := server.held(); n != 0 {
		t.Errorf("seed %d: %d locks are left in the database", seed, n)
	}
}

func randomCall(rng *random, s *Session, holders *holders) {
	ctx, cancel := context.WithTimeout(background, rng.duration(40*time.Millisecond)+1)
	defer cancel()
	key := ID(int64(rng.intn(4)))
	var (
		lock *Lock
		err  error
	)
	switch rng.intn(4) {
	case 0:
		lock, err = s.TryLock(ctx, key)
	case 1:
		lock, err = s.Lock(ctx, key)
	case 2:
		lock, err = s.TryAny(ctx, ID(0), ID(1), ID(2), ID(3))
	case 3:
		lock, err = s.LockAny(ctx, ID(2), ID(3), Pair(1, 1))
	}
	if err != nil {
		return
	}
	holders.enter(lock)
	time.Sleep(rng.duration(10 * time.Millisecond))
	holders.leave(lock)
	_ = lock.Unlock()
}
