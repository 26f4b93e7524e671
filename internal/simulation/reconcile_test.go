package simulation

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// once returns a hook that fails with err the first time.
func once(err error) func() error {
	return func() error { defer func() { err = nil }(); return err }
}

// A statement that fails half-way costs no lock while the session lives. The
// engine asks the server which locks the session holds.
func TestStatementFailsHalfWay(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		c := st.conn(0)
		kept, released := mustTry(t, s, sqllock.ID(1)), mustTry(t, s, sqllock.ID(2))
		hook, resume := hold(t)
		c.hooks(hook, nil)
		blocker := beginTry(background, s, sqllock.ID(3))
		unlocked := beginUnlock(released)
		taken := beginTry(background, s, sqllock.ID(4)) // the statement takes it before it fails
		denied := beginTry(background, s, sqllock.ID(5))
		c.hooks(nil, func() error {
			c.hooks(nil, nil)
			st.giveUp(sqllock.ID(5)) // as if this one had not been taken
			return &dialect.Failure{Kind: dialect.Full, Reason: "no room"}
		})
		resume()
		wantReturned(t, "blocker", blocker, nil)
		wantReturned(t, "Unlock", unlocked, nil)
		wantReturned(t, "what was taken", taken, nil)
		wantReturned(t, "what was not", denied, sqllock.ErrCapacity)
		wantErr(t, "Err of a lock beside a failed statement", kept.Err(), nil)
		if got := s.Stats().Losses; got != 0 {
			t.Errorf("%d losses", got)
		}
		mustUnlock(t, kept)
		mustUnlock(t, mustTry(t, s, sqllock.ID(5)))
	})
}

// A release whose statement fails on a session that lives is sent again, until
// the database no longer holds the lock. Unlock returns after that. A session
// that never releases is lost.
func TestReleaseIsSentAgainAfterAnError(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		hook, resume := hold(t)
		failures := 0
		st.conn(0).hooks(func() error {
			if failures++; failures < 3 {
				return failedStatement
			}
			return hook()
		}, nil)
		unlocked := beginUnlock(lock)
		pending(t, "Unlock while the database holds the lock", unlocked)
		if n := st.held(); n != 1 {
			t.Fatalf("%d locks at the server, want 1", n)
		}
		resume()
		wantReturned(t, "Unlock", unlocked, nil)
		synctest.Wait()
		if st.held() != 0 || s.Stats().Losses != 0 {
			t.Errorf("%d locks are left at the server, %d losses", st.held(), s.Stats().Losses)
		}
		lock = mustTry(t, s, sqllock.ID(1))
		st.conn(0).hooks(fail(failedStatement), nil)
		wantErr(t, "Unlock that always fails", lock.Unlock(), sqllock.ErrLost)
		if n := s.Stats().Losses; n != 1 {
			t.Errorf("%d losses, want 1", n)
		}
	})
}

// The time that a caller waits for a response includes statements that failed. A
// release that is sent again gives Unlock no more time, nor a TryLock of its key.
func TestReleaseSentAgainHasTheTimeThatIsLeft(t *testing.T) {
	for _, async := range []bool{false, true} {
		var opts []sqllock.Option
		if async {
			opts = append(opts, sqllock.WithAsyncUnlock())
		}
		scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			lock := mustTry(t, s, sqllock.ID(1))
			time.Sleep(2 * fairness) // it may not be handed over any more
			st.conn(0).hooks(func() error {
				time.Sleep(responseBound * 2 / 3)
				return failedStatement
			}, nil)
			began := time.Now()
			unlocked := beginUnlock(lock)
			tried := beginTry(background, s, sqllock.ID(1))
			wantErr(t, "TryLock", (<-tried).err, sqllock.ErrUnavailable)
			if got := <-unlocked; !async {
				wantErr(t, "Unlock", got.err, sqllock.ErrUnavailable)
			}
			if took := time.Since(began); took > responseBound {
				t.Errorf("async %t: the calls returned after %v, want within %v", async, took, responseBound)
			}
			st.conn(0).hooks(nil, nil)
			time.Sleep(responseBound)
			mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
			if n := s.Stats().Losses; n != 0 {
				t.Errorf("async %t: %d connections were lost", async, n)
			}
		}, opts...)
	}
}

// A statement of TryEach fails, and the server has done all of it or nothing. Or
// the connection is gone. The call returns each time, and no lock stays behind.
func TestTryEachReturnsAfterALostReply(t *testing.T) {
	var wide []sqllock.Key
	for i := range int64(16) {
		wide = append(wide, sqllock.ID(100+i))
	}
	for name, hooks := range map[string][2]error{ // of the first statement, before and after the server has carried it out
		"all taken":       {nil, failedStatement},
		"none taken":      {failedStatement, nil},
		"connection lost": {nil, errGone},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				st.conn(0).hooks(once(hooks[0]), once(hooks[1]))
				call := begin(func() (sqllock.Locks, error) {
					return lockertest.TryEach(t.Context(), s, [][]sqllock.Key{ids(1), wide})
				})
				wantReturned(t, "TryEach", call, sqllock.ErrUnavailable)
				time.Sleep(ticks)
				if st.held() != 0 || s.Stats().Held != 0 {
					t.Errorf("%d locks are left at the server, %d here", st.held(), s.Stats().Held)
				}
				locks, err := lockertest.TryEach(t.Context(), s, [][]sqllock.Key{ids(1), wide})
				wantErr(t, "a later TryEach", err, nil)
				wantErr(t, "Unlock", locks.Unlock(), nil)
			})
		})
	}
}

// A terminating is a session with a server process. Its script counts the
// statements that end processes, and rejects the first ones.
type terminating struct {
	*conn
	asked *termination
}

type termination struct {
	rejects int
	with    error // how the first ones fail
	stay    bool  // the processes do not end

	mu    sync.Mutex
	count int
	left  []dialect.Process // of the last statement
}

// Terminate implements dialect.Terminator.
func (s terminating) Terminate(left []dialect.Process) ([]dialect.Process, error) {
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	s.asked.left = left
	if err := s.say(); err != nil {
		return nil, err
	}
	if s.asked.count++; s.asked.count <= s.asked.rejects {
		return nil, s.asked.with
	}
	if s.asked.stay {
		return left, nil
	}
	return nil, nil
}

// A Session remembers a limited number of server processes.
func TestMostLeftProcesses(t *testing.T) {
	const most = 64
	asked := &termination{stay: true}
	script{session: func(_ *stage, c *conn) dialect.Session { return terminating{c, asked} }}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		for i := range most + 10 {
			st.conn(i).hooks(nil, fail(errGone))
			_, _ = s.TryLock(background, sqllock.ID(1))
			time.Sleep(time.Second)
		}
		asked.mu.Lock()
		defer asked.mu.Unlock()
		if n := len(asked.left); n != most || asked.left[0].PID != 11 {
			t.Errorf("%d processes are to be ended, from %d on; want %d, without the oldest", n, asked.left[0].PID, most)
		}
	})
}

// The server process of a lost connection is ended, even if that fails at first.
// A server where it always fails is not asked for ever, and serves: also one where
// it costs the connection each time.
func TestLeftProcessIsEndedAfterAFailure(t *testing.T) {
	const never, most = 1 << 30, 10
	for _, tt := range []struct {
		rejects, asked int
		with           error
	}{
		{0, 1, nil}, {1, 2, failedStatement}, {never, most, failedStatement}, {1, 2, errGone}, {never, most, errGone},
	} {
		asked := &termination{rejects: tt.rejects, with: tt.with}
		script{session: func(_ *stage, c *conn) dialect.Session { return terminating{c, asked} }}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			st.conn(0).hooks(nil, fail(errGone))
			beginTry(background, s, sqllock.ID(1)) // finds the loss
			time.Sleep(time.Hour)
			mustTry(t, s, sqllock.ID(2))
			asked.mu.Lock()
			defer asked.mu.Unlock()
			if asked.count != tt.asked {
				t.Errorf("%d statements to end a process, of which %d may be rejected; want %d", asked.count, tt.rejects, tt.asked)
			}
			if tt.rejects == 0 && (len(asked.left) != 1 || asked.left[0] != st.conn(0).Process()) {
				t.Errorf("ended %v, want that of the first connection", asked.left)
			}
		})
	}
}
