package sqllock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const idleTime = 5 * time.Second

// asleep fails the test if s has not closed its connections while idle.
func asleep(t *testing.T, s *Session, server *fakeServer) {
	t.Helper()
	synctest.Wait()
	got := s.Stats()
	if got.Connections != 0 || !got.IdleClosed || got.LeaseRemaining != 0 || got.Watched || len(s.Connections()) != 0 {
		t.Fatalf("%d connections, idle closed %t, %v of a lease", got.Connections, got.IdleClosed, got.LeaseRemaining)
	}
	if got.Losses != 0 || got.LocksLost != 0 {
		t.Errorf("%d losses", got.Losses)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	for _, session := range server.sessions {
		select {
		case <-session.closed:
		default:
			t.Error("a connection is not closed")
		}
	}
}

// awake fails the test if s has no connection.
func awake(t *testing.T, s *Session, when string) {
	t.Helper()
	synctest.Wait()
	if got := s.Stats(); got.Connections == 0 || got.IdleClosed {
		t.Fatalf("%s: %d connections, idle closed %t", when, got.Connections, got.IdleClosed)
	}
}

// attempts returns how many sessions were to be opened.
func (f *fakeServer) attempts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opens
}

// all returns all sessions that were ever opened.
func (f *fakeServer) all() []*fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sessions)
}

// opening sets onOpen.
func (f *fakeServer) opening(hook func(n int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onOpen = hook
}

// An idle Session closes its connection after the time, and not before. A call
// opens it again. This is no loss: no Observer is told, and no line is logged.
func TestIdleClose(t *testing.T) {
	var told figures
	var logged strings.Builder
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		time.Sleep(idleTime - 1)
		awake(t, s, "before the time")
		for n := 1; n <= 3; n++ {
			time.Sleep(time.Nanosecond)
			asleep(t, s, server)
			time.Sleep(time.Hour)
			asleep(t, s, server)
			if server.attempts() != n {
				t.Fatalf("%d connections were opened, want %d", server.attempts(), n)
			}
			lock := mustTry(t, s, ID(1))
			awake(t, s, "with a lock")
			if err := lock.Err(); err != nil {
				t.Errorf("the lock: %v", err)
			}
			mustUnlock(t, lock)
			time.Sleep(idleTime - 1)
			awake(t, s, "after the lock")
		}
		if told.connected != 4 {
			t.Errorf("told of %d connections, want 4", told.connected)
		}
		told.agree(t, s.Stats())
		if logged.Len() > 0 {
			t.Errorf("the log has %s", logged.String())
		}
	}, WithIdleClose(idleTime), WithObserver(told.observer()), WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
}

// A Session that holds a lock, or has a caller that waits, is not idle.
func TestIdleCloseWhileNeeded(t *testing.T) {
	for name, need := range map[string]func(t *testing.T, s *Session, server *fakeServer) (end func()){
		"held": func(t *testing.T, s *Session, _ *fakeServer) func() {
			lock := mustTry(t, s, ID(1))
			return func() { mustUnlock(t, lock) }
		},
		"a reader": func(t *testing.T, s *Session, _ *fakeServer) func() {
			lock, err := s.TryRLock(background, ID(1))
			if err != nil {
				t.Fatal(err)
			}
			return func() { mustUnlock(t, lock) }
		},
		"a waiter": func(t *testing.T, s *Session, server *fakeServer) func() {
			server.steal(ID(1))
			ctx, cancel := context.WithCancel(background)
			waiting := begin(func() (*Lock, error) { return s.Lock(ctx, ID(1)) })
			return func() { cancel(); wantErr(t, "Lock", returned(t, "Lock", waiting), context.Canceled) }
		},
		"a waiter for a set": func(t *testing.T, s *Session, server *fakeServer) func() {
			server.steal(ID(1))
			ctx, cancel := context.WithCancel(background)
			waiting := begin(func() (*Lock, error) { _, err := s.LockAll(ctx, ID(1), ID(2)); return nil, err })
			return func() { cancel(); wantErr(t, "LockAll", returned(t, "LockAll", waiting), context.Canceled) }
		},
		"calls": func(t *testing.T, s *Session, server *fakeServer) func() {
			server.steal(ID(1))
			for range 100 {
				time.Sleep(idleTime - 1)
				if _, err := s.TryLock(background, ID(1)); !errors.Is(err, ErrHeld) {
					t.Fatal(err)
				}
			}
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				end := need(t, s, server)
				time.Sleep(idleTime - 1)
				awake(t, s, "needed")
				time.Sleep(10 * idleTime)
				if name != "calls" {
					awake(t, s, "needed for long")
				}
				end()
				time.Sleep(2 * idleTime) // what ends without a statement is noticed within as long
				asleep(t, s, server)
				if server.attempts() != 1 {
					t.Errorf("%d connections were opened", server.attempts())
				}
			}, WithIdleClose(idleTime))
		})
	}
}

// A call waits for the connection that it opens. If the database is away, it
// fails as after a loss. The Session goes on trying, and sleeps again once it has
// connected.
func TestIdleCloseThenAway(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		time.Sleep(idleTime)
		asleep(t, s, server)
		hook, resume := hold(t)
		server.opening(func(int) error { return hook() })
		call := beginTry(background, s, ID(1))
		if got := s.Stats(); got.Connections != 0 || !got.IdleClosed {
			t.Errorf("%d connections, idle closed %t: a call opens the connection, which has not failed", got.Connections, got.IdleClosed)
		}
		time.Sleep(answerTimeout - 1)
		pending(t, "TryLock", call)
		time.Sleep(time.Nanosecond)
		wantErr(t, "TryLock while the database does not respond", returned(t, "TryLock", call), ErrUnavailable)
		if got := s.Stats(); got.IdleClosed || got.Losses != 0 {
			t.Errorf("idle closed %t, %d losses while the database is away", got.IdleClosed, got.Losses)
		}
		if _, err := s.TryLock(background, ID(1)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("a later call: %v", err)
		}
		waiting := begin(func() (*Lock, error) { return s.Lock(background, ID(2)) })
		resume()
		time.Sleep(time.Second)
		got := returned(t, "Lock", waiting)
		wantErr(t, "Lock", got, nil)
		mustUnlock(t, got.lock)
		time.Sleep(2 * idleTime)
		asleep(t, s, server)
	}, WithIdleClose(idleTime))
}

// Close ends a Session that is asleep, and one that is opening a connection.
func TestCloseWhileAsleep(t *testing.T) {
	for _, opening := range []bool{false, true} {
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			time.Sleep(idleTime)
			asleep(t, s, server)
			var call <-chan called
			if opening {
				server.opening(func(int) error { time.Sleep(500 * time.Millisecond); return nil })
				call = beginTry(background, s, ID(1))
			}
			began := time.Now()
			if err := s.Close(); err != nil || time.Since(began) > time.Second {
				t.Errorf("Close: %v after %v", err, time.Since(began))
			}
			if opening {
				wantErr(t, "TryLock", returned(t, "TryLock", call), ErrClosed)
			}
			if _, err := s.TryLock(background, ID(1)); !errors.Is(err, ErrClosed) {
				t.Errorf("TryLock after Close: %v", err)
			}
			if s.Stats().IdleClosed {
				t.Error("a closed Session is called idle")
			}
			time.Sleep(time.Second)
			if n := server.attempts() - len(server.all()); n != 0 {
				t.Errorf("%d attempts to open are left", n)
			}
			for _, session := range server.all() {
				<-session.closed
			}
		}, WithIdleClose(idleTime))
	}
}

// The room in the server's lock table is not known while a Session sleeps.
func TestIdleCloseForgetsTheRoom(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		s.table.mu.Lock()
		s.room = room{known: true, size: 100, used: 70, share: 0, tight: true}
		s.table.mu.Unlock()
		time.Sleep(idleTime)
		asleep(t, s, server)
		if got := s.Stats(); got.TableSize != 0 || got.TableUsed != 0 {
			t.Errorf("%d of %d places while it sleeps", got.TableUsed, got.TableSize)
		}
		mustUnlock(t, mustTry(t, s, ID(1))) // what was known before denies nothing
	}, WithIdleClose(idleTime))
}
