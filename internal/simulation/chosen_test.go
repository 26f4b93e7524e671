package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A request in the queue goes out on whichever connection takes requests by
// then, and at once.
func TestQueuedRequestsFollowTheChoice(t *testing.T) {
	two := script{perConn: 2, opts: []sqllock.Option{sqllock.WithMaxConns(2)}}

	t.Run("a set whose key another connection releases", func(t *testing.T) {
		two.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			many, err := s.TryLockAll(background, ids(0, 1, 2, 3)...) // more than a connection should have
			wantErr(t, "TryLockAll", err, nil)
			mustTry(t, s, sqllock.ID(4)) // opens the second connection
			synctest.Wait()
			hook, resume := hold(t)
			st.conn(0).hooks(hook, nil)
			unlocked := beginUnlock(many[0])
			set := begin(func() (sqllock.Locks, error) { return s.TryLockAll(background, ids(0, 10)...) })
			pending(t, "the set", set)
			resume()
			wantReturned(t, "Unlock", unlocked, nil)
			wantReturned(t, "the set", set, nil)
		})
	})

	// The first connection has room for many, and the second none to send.
	roomOnFirst := func(t *testing.T, s *sqllock.Session) {
		many, err := s.TryLockAll(background, ids(0, 1, 2, 3, 4, 5)...)
		wantErr(t, "TryLockAll", err, nil)
		last := mustTry(t, s, sqllock.ID(6))
		synctest.Wait()
		if n := s.Stats().Connections; n != 2 {
			t.Fatalf("%d connections, want 2", n)
		}
		for _, l := range append(many, last) {
			mustUnlock(t, l)
		}
		synctest.Wait()
	}
	six := script{perConn: 6, opts: two.opts}

	t.Run("beside a doubtful connection", func(t *testing.T) {
		six.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			roomOnFirst(t, s)
			hook, _ := hold(t)
			st.conn(0).hooks(hook, nil)
			sent := beginTry(background, s, sqllock.ID(10))
			time.Sleep(500 * time.Millisecond)
			queued := beginTry(background, s, sqllock.ID(11))
			waits := beginLock(background, s, sqllock.ID(12))
			time.Sleep(400 * time.Millisecond)
			wantReturned(t, "the request without a response", sent, sqllock.ErrUnavailable)
			wantReturned(t, "TryLock", queued, nil)
			wantReturned(t, "Lock", waits, nil)
		})
	})
}
