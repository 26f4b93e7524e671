package sqllock

import (
	"testing"
	"testing/synctest"
)

// A release that waits in the queue of a lost connection is for that connection
// alone. The key may have been acquired on another one since, and its release
// belongs there.
func TestReleaseStaysOnItsConnection(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		first, second := mustTry(t, s, ID(0)), mustTry(t, s, ID(1))
		synctest.Wait()
		mustTry(t, s, ID(2)) // stays on the other connection
		if got := s.Stats().Connections; got != 2 {
			t.Fatalf("%d connections, want 2", got)
		}

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
		again := mustTry(t, s, ID(0))
		busy, answer := hold(t)
		server.session(1).hooks(busy, nil)
		ahead := beginTry(background, s, ID(3))
		queued = beginUnlock(again)

		connect() // the first connection is replaced, and its queue is sent
		synctest.Wait()
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
