package simulation

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Another connection is opened for each thousand locks, up to WithMaxConns. A
// connection beyond the first is closed when it has had no lock for a while.
func TestConnectionForEachThousandLocks(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, _ *stage) {
		var locks sqllock.Locks
		for i := range int64(2*dialect.HeldPerConnection + 100) {
			locks = append(locks, mustTry(t, s, sqllock.ID(i)))
			synctest.Wait()
			if got, want := s.Stats().Connections, min(1+len(locks)/(dialect.HeldPerConnection+1), 3); got < want || got > want+1 {
				t.Fatalf("%d connections with %d locks", got, len(locks))
			}
		}
		for _, l := range locks {
			mustUnlock(t, l)
		}
		time.Sleep(15*s.Stats().Heartbeat - 1)
		if got := s.Stats(); got.Connections != 3 {
			t.Errorf("%d connections before fifteen idle heartbeats, want 3", got.Connections)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := s.Stats(); got.Connections != 1 || got.Losses != 0 {
			t.Errorf("%d connections and %d losses after fifteen idle heartbeats, want 1 and 0", got.Connections, got.Losses)
		}
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
	})
}

// A Session does not open another connection if the pool has no room for it and
// for the proof. After a failed attempt it does not try again at once.
func TestGrowthIsLimited(t *testing.T) {
	script{perConn: 2, opts: []sqllock.Option{sqllock.WithMaxConns(3)}}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.db.SetMaxOpenConns(2)
		for i := range int64(10) {
			mustTry(t, s, sqllock.ID(i))
			synctest.Wait()
		}
		if n := st.attempts(); n != 1 {
			t.Errorf("%d connections of a pool of two, want 1", n)
		}
		st.db.SetMaxOpenConns(10)
		st.onOpen(func(int) error { return errGone })
		for i := range int64(10) {
			mustTry(t, s, sqllock.ID(10+i))
			time.Sleep(time.Second)
		}
		if n := st.attempts() - 1; n < 1 || n > 2 {
			t.Errorf("%d attempts at another connection in ten seconds, want one or two", n)
		}
		st.onOpen(nil)
		for i := range int64(20) {
			mustTry(t, s, sqllock.ID(20+i))
			time.Sleep(time.Second)
		}
		if n := s.Stats().Connections; n != 3 {
			t.Errorf("%d connections, want the 3 of WithMaxConns", n)
		}
	})
}

// Requests that are under way on one connection count towards WithMaxHeld on the
// others.
func TestMaxHeldOverConnections(t *testing.T) {
	script{perConn: 2, opts: []sqllock.Option{sqllock.WithMaxConns(2), sqllock.WithMaxHeld(7)}}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		twoConnections(t, s)
		hook, resume := hold(t)
		st.conn(1).hooks(hook, nil)
		set := begin(func() (sqllock.Locks, error) { return s.TryLockAll(background, ids(10, 11, 12, 13)...) }) // under way on the second
		beyond := beginTry(background, s, sqllock.ID(20))                                                       // on the first, which has fewer
		wantReturned(t, "one beyond the limit", beyond, sqllock.ErrCapacity)
		resume()
		wantReturned(t, "the set", set, nil)
		if n := st.held(); n != 7 {
			t.Errorf("%d locks at the server, want 7", n)
		}
	})
}

// A key is in the list of those that are held, and in none while a statement
// requests or releases it.
func TestConnections(t *testing.T) {
	exports := sqllock.Namespace("export")
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		named := exports.Key("held")
		mustTry(t, s, named)
		mustTry(t, s, sqllock.Pair(3, 4))
		mustRead(t, s, sqllock.ID(2))
		mustRead(t, s, sqllock.ID(2))
		released := mustTry(t, s, sqllock.ID(3))
		hook, resume := hold(t)
		st.conn(0).hooks(hook, nil)
		requested := beginTry(background, s, sqllock.ID(4))
		set := begin(func() (sqllock.Locks, error) { return s.TryLockAll(background, ids(6, 7)...) })
		unlocked := beginUnlock(released)                // behind the statement under way
		queued := beginTry(background, s, sqllock.ID(5)) // not requested yet: not the connection's
		got := s.Connections()
		resume()
		wantReturned(t, "TryLock", requested, nil)
		wantReturned(t, "TryLockAll", set, nil)
		wantReturned(t, "Unlock", unlocked, nil)
		wantReturned(t, "TryLock", queued, nil)
		if len(got) != 1 {
			t.Fatalf("%d connections, want 1", len(got))
		}
		c := got[0]
		if c.PID != 1 || !c.Start.Equal(time.Unix(1, 0)) {
			t.Errorf("process %d since %v", c.PID, c.Start)
		}
		wantKeys(t, "Held", c.Held, sqllock.ID(named.Int64()), sqllock.Pair(3, 4))
		wantKeys(t, "Shared", c.Shared, sqllock.ID(2))
	})
}

func wantKeys(t *testing.T, list string, got []sqllock.Key, want ...sqllock.Key) {
	t.Helper()
	if len(got) != len(want) || slices.ContainsFunc(want, func(k sqllock.Key) bool { return !slices.Contains(got, k) }) {
		t.Errorf("%s: %v, want %v", list, got, want)
	}
}
