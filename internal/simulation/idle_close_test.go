package simulation

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

const idleTime = 6 * time.Second // three heartbeats: at each the Session looks

// asleep fails the test if s has not closed its connections while idle.
func asleep(t *testing.T, s *sqllock.Session, st *stage) {
	t.Helper()
	synctest.Wait()
	got := s.Stats()
	if got.Connections != 0 || !got.IdleClosed || got.LeaseRemaining != 0 || got.Watched || len(s.Connections()) != 0 {
		t.Fatalf("%d connections, idle closed %t, %v of a lease", got.Connections, got.IdleClosed, got.LeaseRemaining)
	}
	if got.Losses != 0 || got.LocksLost != 0 {
		t.Errorf("%d losses", got.Losses)
	}
	if n := st.unclosed(); n != 0 {
		t.Errorf("%d connections are not closed", n)
	}
}

// awake fails the test if s has no connection.
func awake(t *testing.T, s *sqllock.Session, when string) {
	t.Helper()
	synctest.Wait()
	if got := s.Stats(); got.Connections == 0 || got.IdleClosed || got.Watched {
		t.Fatalf("%s: %d connections, idle closed %t, watched without a socket %t", when, got.Connections, got.IdleClosed, got.Watched)
	}
}

// An idle Session closes its connection after the time, and not before. A call
// opens it again. This is no loss: no Observer is told, and no line is logged.
func TestIdleClose(t *testing.T) {
	var told figures
	var logged strings.Builder
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		time.Sleep(idleTime - 1)
		awake(t, s, "before the time")
		for n := 1; n <= 3; n++ {
			time.Sleep(time.Nanosecond)
			asleep(t, s, st)
			time.Sleep(time.Hour)
			asleep(t, s, st)
			if st.attempts() != n {
				t.Fatalf("%d connections were opened, want %d", st.attempts(), n)
			}
			lock := mustTry(t, s, sqllock.ID(1))
			awake(t, s, "with a lock")
			wantErr(t, "Err", lock.Err(), nil)
			mustUnlock(t, lock)
			time.Sleep(idleTime - 1)
			awake(t, s, "after the lock")
		}
		if told.connected != 4 {
			t.Errorf("told of %d connections, want 4", told.connected)
		}
		told.agree(t, s)
		if logged.Len() > 0 {
			t.Errorf("the log has %s", logged.String())
		}
	}, sqllock.WithIdleClose(idleTime), sqllock.WithObserver(told.observer()), sqllock.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
}

// A Session that holds a lock, or has a caller that waits, is not idle.
func TestIdleCloseWhileNeeded(t *testing.T) {
	waiting := func(t *testing.T, st *stage, call func(ctx context.Context) error) (end func()) {
		st.steal(sqllock.ID(1))
		ctx, cancel := context.WithCancel(background)
		waits := begin(func() (sqllock.Locks, error) { return nil, call(ctx) })
		return func() { cancel(); wantReturned(t, "a waiter", waits, context.Canceled) }
	}
	for name, need := range map[string]func(t *testing.T, s *sqllock.Session, st *stage) (end func()){
		"held": func(t *testing.T, s *sqllock.Session, _ *stage) func() {
			lock := mustTry(t, s, sqllock.ID(1))
			return func() { mustUnlock(t, lock) }
		},
		"a reader": func(t *testing.T, s *sqllock.Session, _ *stage) func() {
			lock := mustRead(t, s, sqllock.ID(1))
			return func() { mustUnlock(t, lock) }
		},
		"a waiter": func(t *testing.T, s *sqllock.Session, st *stage) func() {
			return waiting(t, st, func(ctx context.Context) error { return second(s.Lock(ctx, sqllock.ID(1))) })
		},
		"a waiter for a set": func(t *testing.T, s *sqllock.Session, st *stage) func() {
			return waiting(t, st, func(ctx context.Context) error { return second(s.LockAll(ctx, ids(1, 2)...)) })
		},
		"calls": func(t *testing.T, s *sqllock.Session, st *stage) func() {
			st.steal(sqllock.ID(1))
			for range 100 {
				time.Sleep(idleTime - 1)
				wantErr(t, "TryLock", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrHeld)
			}
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				end := need(t, s, st)
				time.Sleep(idleTime - 1)
				awake(t, s, "needed")
				time.Sleep(10 * idleTime)
				if name != "calls" {
					awake(t, s, "needed for long")
				}
				end()
				time.Sleep(2 * idleTime) // what ends without a statement is noticed within as long
				asleep(t, s, st)
				if n := st.attempts(); n != 1 {
					t.Errorf("%d connections were opened", n)
				}
			}, sqllock.WithIdleClose(idleTime))
		})
	}
}

// All connections of an idle Session close, also those beyond the first.
func TestIdleCloseOfSeveral(t *testing.T) {
	script{perConn: 2, opts: []sqllock.Option{sqllock.WithMaxConns(2), sqllock.WithIdleClose(idleTime)}}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		for _, l := range twoConnections(t, s) {
			mustUnlock(t, l)
		}
		time.Sleep(3 * idleTime)
		asleep(t, s, st)
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
	})
}

// A call waits for the connection that it opens. If the database is away, it
// fails as after a loss. The Session goes on trying, and sleeps again once it has
// connected.
func TestIdleCloseThenAway(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		time.Sleep(idleTime)
		asleep(t, s, st)
		hook, resume := hold(t)
		st.onOpen(func(int) error { return hook() })
		call := beginTry(background, s, sqllock.ID(1))
		if got := s.Stats(); got.Connections != 0 || !got.IdleClosed {
			t.Errorf("%d connections, idle closed %t: a call opens the connection, which has not failed", got.Connections, got.IdleClosed)
		}
		time.Sleep(responseBound - 1)
		pending(t, "TryLock", call)
		time.Sleep(time.Nanosecond)
		wantReturned(t, "TryLock while the database does not respond", call, sqllock.ErrUnavailable)
		if got := s.Stats(); got.IdleClosed || got.Losses != 0 {
			t.Errorf("idle closed %t, %d losses while the database is away", got.IdleClosed, got.Losses)
		}
		wantErr(t, "a later call", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrUnavailable)
		waiting := beginLock(background, s, sqllock.ID(2))
		resume()
		mustUnlock(t, granted(t, "Lock", after(time.Second, waiting)))
		time.Sleep(2 * idleTime)
		asleep(t, s, st)
	}, sqllock.WithIdleClose(idleTime))
}

// Close ends a Session that is asleep, and one that is opening a connection.
func TestCloseWhileAsleep(t *testing.T) {
	for _, opening := range []bool{false, true} {
		scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			time.Sleep(idleTime)
			asleep(t, s, st)
			var call <-chan called
			if opening {
				st.onOpen(func(int) error { time.Sleep(500 * time.Millisecond); return nil })
				call = beginTry(background, s, sqllock.ID(1))
			}
			began := time.Now()
			if err := s.Close(); err != nil || time.Since(began) > time.Second {
				t.Errorf("Close: %v after %v", err, time.Since(began))
			}
			if opening {
				wantReturned(t, "TryLock", call, sqllock.ErrClosed)
			}
			wantErr(t, "TryLock after Close", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrClosed)
			if s.Stats().IdleClosed {
				t.Error("a closed Session is called idle")
			}
		}, sqllock.WithIdleClose(idleTime))
	}
}
