package sqllock

import (
	"testing"
	"time"
)

// A release that waits in the queue of a lost connection is for that connection
// alone. The key may have been acquired on another one since, and its release
// belongs there.
func TestReleaseStaysOnItsConnection(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		twoConnections(t, s)
		s.table.mu.Lock()
		first, second := s.table.keys.of(ID(0).id()).lock, s.table.keys.of(ID(1).id()).lock
		s.table.mu.Unlock()
		waiter := begin(func() (*Lock, error) { return s.Lock(background, ID(0)) })
		time.Sleep(2 * fairness) // the key may not be handed over any more

		// The release of ID(0) waits behind a statement that ends its connection.
		fails, endFirst := hold(t)
		server.session(0).hooks(func() error { _ = fails(); return errGone }, nil)
		connects, connect := hold(t)
		server.onOpen = func(int) error { return connects() }
		released := beginUnlock(second)
		queued := beginUnlock(first)
		endFirst()
		wantErr(t, "the release that was sent", returned(t, "Unlock", released), ErrLost)
		wantErr(t, "the release that was queued", returned(t, "Unlock", queued), ErrLost)

		// The key is acquired on the other connection, and its release waits there.
		time.Sleep(2 * yieldFor)
		again := returned(t, "Lock", waiter)
		wantErr(t, "Lock", again, nil)
		busy, answer := hold(t)
		server.session(1).hooks(busy, nil)
		ahead := beginTry(background, s, ID(3))
		queued = beginUnlock(again.lock)

		connect() // the first connection is replaced, and its queue is sent
		time.Sleep(yieldFor)
		for _, b := range server.session(2).sent() {
			if len(b.Release) > 0 {
				t.Errorf("the new connection releases %v, which it does not hold", b.Release)
			}
		}
		answer()
		wantErr(t, "TryLock", returned(t, "TryLock", ahead), nil)
		wantErr(t, "Unlock on the other connection", returned(t, "Unlock", queued), nil)
		if n := s.Stats().Losses; n != 1 {
			t.Errorf("%d connections were lost, want 1", n)
		}
	}, withPerConn(2), WithMaxConns(2))
}

// While one statement is under way, requests and releases queue up. They go
// together in the next statement, releases first.
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

// Groups and single keys that do not fit into one statement go into the next. A
// group that is larger than any statement is denied.
func TestRoomOfAStatement(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.carry(4)
		db := server.session(0)
		hook, resume := hold(t)
		db.hooks(hook, nil)
		blocker := beginTry(background, s, ID(99))
		var calls []<-chan called
		for i := range int64(3) { // three keys each: two groups do not fit together
			calls = append(calls, begin(func() (*Lock, error) { return s.TryAny(background, ID(10*i), ID(10*i+1), ID(10*i+2)) }))
		}
		for i := range int64(6) {
			calls = append(calls, beginTry(background, s, ID(100+i)))
		}
		tooMany := begin(func() (*Lock, error) { return s.TryAny(background, ids(51, 52, 53, 54, 55)...) })
		resume()
		wantErr(t, "blocker", returned(t, "blocker", blocker), nil)
		for _, c := range calls {
			wantErr(t, "one of many", returned(t, "TryLock or TryAny", c), nil)
		}
		wantErr(t, "five keys of four", returned(t, "TryAny", tooMany), ErrCapacity)
		for i, b := range db.sent() {
			keys := len(b.Release) + len(b.Try)
			for _, g := range b.Any {
				keys += len(g)
			}
			if keys > 4 {
				t.Errorf("statement %d carries %d keys, of 4", i, keys)
			}
		}
	})
}
