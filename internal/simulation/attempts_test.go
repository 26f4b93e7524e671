package simulation

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A server may be slow to connect. The first attempt goes on while others begin,
// one at a time. The connections that come too late are destroyed.
func TestSlowAttemptWins(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		const slow, most = 2500 * time.Millisecond, 3
		stuck, resume := hold(t)
		st.onOpen(func(n int) error {
			if n == 2 { // the first after the loss
				time.Sleep(slow)
				return nil
			}
			return stuck()
		})
		lock := mustTry(t, s, sqllock.ID(1))
		st.conn(0).hooks(fail(errGone), nil)
		beginTry(background, s, sqllock.ID(2))
		<-lock.Context().Done()
		time.Sleep(slow + time.Millisecond)
		mustTry(t, s, sqllock.ID(3))
		if n := st.attempts() - 1; n != most {
			t.Errorf("%d connections were begun, want %d", n, most)
		}
		resume()
		synctest.Wait()
		if n := st.unclosed(); n != 1 {
			t.Errorf("%d connections are open, want that which was first", n)
		}
	})
}

// A server that is slow to connect is reached also through a pool that has no
// connections for two attempts.
func TestSlowServerAndSmallPool(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.db.SetMaxOpenConns(1) // the attempts here need none
		st.onOpen(func(int) error { time.Sleep(1500 * time.Millisecond); return nil })
		st.conn(0).hooks(fail(errGone), nil)
		beginTry(background, s, sqllock.ID(1))
		time.Sleep(10 * dialect.ConnectTimeout)
		mustTry(t, s, sqllock.ID(2))
	})
}

// So it is if the pool is full only at times, because others use it, or because
// the attempts themselves do.
func TestSlowServerAndBusyPool(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.onOpen(func(n int) error {
			st.db.SetMaxOpenConns(n % 2) // 0 is no limit
			time.Sleep(2500 * time.Millisecond)
			return nil
		})
		st.conn(0).hooks(fail(errGone), nil)
		beginTry(background, s, sqllock.ID(1))
		time.Sleep(10 * dialect.ConnectTimeout)
		mustTry(t, s, sqllock.ID(2))
	})
}

// A stuck driver costs a limited number of goroutines, however often the Session
// needs another connection.
func TestStuckGrowth(t *testing.T) {
	const most = 4
	script{perConn: 2, opts: []sqllock.Option{sqllock.WithMaxConns(2)}}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		stuck, _ := hold(t)
		st.onOpen(func(int) error { return stuck() })
		for i := range int64(300) {
			mustTry(t, s, sqllock.ID(i))
			time.Sleep(time.Second)
		}
		if n := st.attempts() - 1; n == 0 || n > most {
			t.Errorf("%d attempts are stuck, want 1 to %d", n, most)
		}
		st.onOpen(nil)
		st.conn(0).hooks(fail(errGone), nil)
		beginTry(background, s, sqllock.ID(-1))
		time.Sleep(ticks)
		mustTry(t, s, sqllock.ID(-1)) // those do not count for a connection that was lost
	})
}

// A Session needs one more connection of the pool while it connects. So of two
// connections that are lost it replaces one after the other.
func TestOneConnectsAtATime(t *testing.T) {
	script{perConn: 2, opts: []sqllock.Option{sqllock.WithMaxConns(2)}}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		twoConnections(t, s)
		var connecting, most atomic.Int32
		st.onOpen(func(int) error {
			most.Store(max(most.Load(), connecting.Add(1)))
			time.Sleep(dialect.ConnectTimeout / 10) // before another attempt begins beside it
			connecting.Add(-1)
			return nil
		})
		for i := range 2 {
			st.conn(i).hooks(fail(errGone), nil) // of the next heartbeat
		}
		time.Sleep(ticks)
		if n := most.Load(); n != 1 || s.Stats().Connections != 2 {
			t.Errorf("%d attempts at one time, and %d connections after them; want 1 and 2", n, s.Stats().Connections)
		}
	})
}

// A Session whose login is rejected tries again soon, and less and less often,
// so that a server that counts such logins has few to count. While the server is
// only away it tries about each second.
func TestAttemptsWhileAway(t *testing.T) {
	for _, tt := range []struct {
		name        string
		failure     *dialect.Failure
		want        error
		least, most int // attempts within ten minutes
	}{
		{"rejected", &dialect.Failure{Kind: dialect.Gone, Reason: "the password", Permanent: true}, sqllock.ErrConfig, 60, 135},
		{"away", &dialect.Failure{Kind: dialect.Gone, Reason: "starting"}, sqllock.ErrUnavailable, 600, 1250},
	} {
		t.Run(tt.name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				st.onOpen(func(int) error { return tt.failure })
				st.conn(0).hooks(nil, fail(errGone))
				_, _ = s.TryLock(background, sqllock.ID(1))
				time.Sleep(time.Second)
				if n := st.attempts() - 1; n < 4 {
					t.Errorf("%d attempts in the first second, want 4 at least", n)
				}
				time.Sleep(10 * time.Minute)
				if n := st.attempts() - 1; n < tt.least || n > tt.most {
					t.Errorf("%d attempts in ten minutes, want %d to %d", n, tt.least, tt.most)
				}
				wantErr(t, "TryLock", second(s.TryLock(background, sqllock.ID(1))), tt.want)
				st.onOpen(nil)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
			})
		})
	}
}
