package sqllock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A connection beyond the first is closed when it is no longer needed.
func TestSpareConnectionIsClosed(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		var locks []*Lock
		for i := range dialect.HeldPerConnection + 100 {
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

// twoConnections takes locks on two connections: ID(0) on the first and ID(2) on
// the second.
func twoConnections(t *testing.T, s *Session) {
	t.Helper()
	for i := range 3 {
		mustTry(t, s, ID(int64(i)))
		synctest.Wait()
	}
	if got := s.Stats().Connections; got != 2 {
		t.Fatalf("%d connections, want 2", got)
	}
}

// A Session does not open another connection if the pool has no room for it and
// for the proof. After a failed attempt it does not try again at once.
func TestGrowthIsLimited(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		s.db.SetMaxOpenConns(2)
		for i := range 10 {
			mustTry(t, s, ID(int64(i)))
			synctest.Wait()
		}
		if server.opens != 1 {
			t.Errorf("%d connections of a pool of two, want 1", server.opens)
		}
		s.db.SetMaxOpenConns(10)
		server.onOpen = func(int) error { return errGone }
		for i := range 10 {
			mustTry(t, s, ID(int64(10+i)))
			time.Sleep(time.Second)
		}
		if n := server.opens - 1; n < 1 || n > 2 {
			t.Errorf("%d attempts at another connection in ten seconds, want one or two", n)
		}
	}, withPerConn(2), WithMaxConns(3))
}

// Requests that are under way on one connection count towards WithMaxHeld on the
// others.
func TestMaxHeldOverConnections(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		twoConnections(t, s) // three locks are held, on the first
		hook, resume := hold(t)
		server.session(1).hooks(hook, nil)
		first := beginTry(background, s, ID(10)) // under way on the second
		var rest []<-chan called
		for i := range int64(4) { // some of them on the first, with room for none
			rest = append(rest, beginTry(background, s, ID(11+i)))
		}
		resume()
		wantErr(t, "the first", returned(t, "TryLock", first), nil)
		for _, c := range rest {
			wantErr(t, "one beyond the limit", returned(t, "TryLock", c), ErrCapacity)
		}
		if n := server.held(); n != 4 {
			t.Errorf("%d locks in the database, want 4", n)
		}
	}, withPerConn(2), WithMaxConns(2), WithMaxHeld(4))
}
