package sqllock

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A release whose statement fails on a session that lives is sent again, until
// the database no longer holds the lock. Unlock returns after that.
func TestReleaseIsSentAgainAfterAnError(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		db := server.session(0)
		hook, resume := hold(t)
		failures := 0
		db.hooks(func() error {
			if failures++; failures < 3 {
				return &dialect.Failure{Kind: dialect.Statement, Reason: "simulated"}
			}
			return hook()
		}, nil)
		unlocked := beginUnlock(lock)
		pending(t, "Unlock while the database holds the lock", unlocked)
		if n := server.held(); n != 1 {
			t.Fatalf("%d locks in the database, want 1", n)
		}
		resume()
		wantErr(t, "Unlock", returned(t, "Unlock", unlocked), nil)
		synctest.Wait()
		if n := server.held(); n != 0 {
			t.Errorf("%d locks are left in the database", n)
		}
		if n := s.Stats().Losses; n != 0 {
			t.Errorf("%d connections were lost", n)
		}
	})
}

// The time that a caller waits for a response includes statements that failed. A
// release that is sent again gives Unlock no more time, nor a TryLock of its key.
func TestReleaseSentAgainHasTheTimeThatIsLeft(t *testing.T) {
	for _, async := range []bool{false, true} {
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			lock := mustTry(t, s, ID(1))
			time.Sleep(2 * fairness) // it may not be handed over any more
			db := server.session(0)
			db.hooks(func() error {
				time.Sleep(answerTimeout * 2 / 3)
				return &failedStatement
			}, nil)
			began := time.Now()
			unlocked := beginUnlock(lock)
			tried := beginTry(background, s, ID(1))
			wantErr(t, "TryLock", <-tried, ErrUnavailable)
			if !async {
				wantErr(t, "Unlock", <-unlocked, ErrUnavailable)
			}
			if took := time.Since(began); took > answerTimeout {
				t.Errorf("async %t: the calls returned after %v, want within %v", async, took, answerTimeout)
			}
			db.hooks(nil, nil)
			time.Sleep(answerTimeout)
			mustUnlock(t, mustTry(t, s, ID(1)))
			if n := s.Stats().Losses; n != 0 {
				t.Errorf("async %t: %d connections were lost", async, n)
			}
		}, func(o *options) { o.async = async })
	}
}

// A fakeProcesses is a fake server whose sessions have server processes. It
// counts the statements that end those, and rejects the first ones.
type fakeProcesses struct {
	*fakeServer
	rejects int
	with    error // how the first ones fail

	countMu sync.Mutex
	asked   int
}

func (f *fakeProcesses) Open(ctx context.Context, db *sql.DB, set dialect.Settings) (dialect.Session, error) {
	s, err := f.fakeServer.Open(ctx, db, set)
	if err != nil {
		return nil, err
	}
	return &terminatingSession{s.(*fakeSession), f}, nil
}

type terminatingSession struct {
	*fakeSession
	processes *fakeProcesses
}

// Process implements dialect.Terminator.
func (s *terminatingSession) Process() dialect.Process { return dialect.Process{PID: 1, Start: 1} }

// Terminate implements dialect.Terminator.
func (s *terminatingSession) Terminate([]dialect.Process) ([]dialect.Process, error) {
	f := s.processes
	f.countMu.Lock()
	defer f.countMu.Unlock()
	if f.asked++; f.asked <= f.rejects {
		return nil, f.with
	}
	return nil, nil
}

// The server process of a lost connection is ended, even if that fails at first.
// A server where it always fails is not asked for ever, and serves: also one where
// it costs the connection each time.
func TestLeftProcessIsEndedAfterAFailure(t *testing.T) {
	rejected := &dialect.Failure{Kind: dialect.Statement, Reason: "simulated"}
	for _, tt := range []struct {
		rejects, asked int
		with           error
	}{
		{0, 1, nil}, {1, 2, rejected}, {1 << 30, maxEndFailures, rejected},
		{1, 2, errGone}, {1 << 30, maxEndFailures, errGone},
	} {
		processes := &fakeProcesses{rejects: tt.rejects, with: tt.with}
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			server.session(0).hooks(nil, func() error { return errGone })
			beginTry(background, s, ID(1)) // finds the loss
			time.Sleep(time.Hour)
			mustTry(t, s, ID(2))
			processes.countMu.Lock()
			defer processes.countMu.Unlock()
			if processes.asked != tt.asked {
				t.Errorf("%d statements to end a process, of which %d may be rejected; want %d", processes.asked, tt.rejects, tt.asked)
			}
		}, func(o *options) {
			processes.fakeServer = o.dialect.(*fakeServer)
			o.dialect = processes
		})
	}
}

// A statement of TryEach fails, and the server has done all of it or nothing. Or
// the connection is gone. The call returns each time, and no lock stays behind.
//
// A group that has keys left after the failure goes on with these. Its call must
// not wait for the response to the statement that failed.
func TestTryEachReturnsAfterALostReply(t *testing.T) {
	wide := make([]Key, 16)
	for i := range wide {
		wide[i] = ID(int64(100 + i))
	}
	for _, tt := range []struct {
		name          string
		groups        [][]Key
		before, after error // of the first statement, before and after the server has carried it out
	}{
		{"all taken", [][]Key{ids(1), ids(2, 3)}, nil, &failedStatement},
		{"none taken", [][]Key{ids(1), ids(2, 3)}, &failedStatement, nil},
		{"all taken, and more keys are left", [][]Key{ids(1), wide}, nil, &failedStatement},
		{"none taken, and more keys are left", [][]Key{ids(1), wide}, &failedStatement, nil},
		{"connection lost", [][]Key{ids(1), wide}, nil, errGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				once := func(err error) func() error {
					return func() error { defer func() { err = nil }(); return err }
				}
				server.session(0).hooks(once(tt.before), once(tt.after))
				call := make(chan calledAll, 1)
				go func() {
					locks, err := s.TryEach(t.Context(), tt.groups)
					call <- calledAll{locks, err}
				}()
				time.Sleep(time.Minute)
				select {
				case got := <-call:
					if err := got.locks.Unlock(); err != nil {
						t.Errorf("Unlock: %v", err)
					}
				default:
					t.Fatal("TryEach has not returned a minute after its statement failed")
				}
				time.Sleep(ticks)
				if n := server.held(); n != 0 || s.Stats().Held != 0 {
					t.Errorf("%d locks are left in the database, %d here", n, s.Stats().Held)
				}
			})
		})
	}
}
