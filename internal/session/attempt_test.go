package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A pool is a connector whose connections do nothing.
type pool struct{}

func (pool) Connect(context.Context) (driver.Conn, error) { return idleConn{}, nil }

func (pool) Driver() driver.Driver { return nil }

type idleConn struct{ driver.Conn }

func (idleConn) Close() error { return nil }

// attempting runs test in virtual time with a slot of a Session that has a pool.
func attempting(t *testing.T, test func(t *testing.T, db *sql.DB, sl *slot)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &Session{db: sql.OpenDB(pool{}), options: Defaults(), connecting: make(chan struct{}, 1)}
		s.options.Suit()
		test(t, s.db, newSlot(s))
		time.Sleep(hangs) // attempts that were given up end
		_ = s.db.Close()
	})
}

// In a full pool an attempt that hangs ends for the next one, which needs its
// connections. The last one has time for a slow server. In a pool with room for
// two, the first goes on beside another one.
func TestAttemptsInAFullPool(t *testing.T) {
	for _, tt := range []struct {
		size, inUse int
		wins, most  int32 // the attempt that connects, and those at one time
	}{
		{1, 0, maxInFull, 1},
		{2, 1, maxInFull, 1},
		{2, 0, 1, 2},
	} {
		attempting(t, func(t *testing.T, db *sql.DB, sl *slot) {
			db.SetMaxOpenConns(tt.size)
			for range tt.inUse {
				c, err := db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
			}
			var begun, running, most atomic.Int32
			got, err := attempt(t.Context(), sl, func(ctx context.Context) (int32, error) {
				n := begun.Add(1)
				defer running.Add(-1)
				running.Add(1)
				slow, cancel := context.WithTimeout(ctx, 2*hangs+hangs/4)
				defer cancel()
				time.Sleep(hangs / 2)
				most.Store(max(most.Load(), running.Load()))
				<-slow.Done()
				return n, ctx.Err()
			}, func(int32) {})
			if err != nil || got != tt.wins || most.Load() != tt.most {
				t.Errorf("%d of %d connections in use: attempt %d has connected (%v), %d at one time; want %d and %d",
					tt.inUse, tt.size, got, err, most.Load(), tt.wins, tt.most)
			}
		})
	}
}

// The end of an attempt's own time is a failure of the server. It never looks like
// the end of the caller's context, which is reported as it is.
func TestEndOfAnAttempt(t *testing.T) {
	for name, tt := range map[string]struct {
		limit time.Duration // of the caller; 0: none
		leave bool
		want  error // nil: the server is gone
	}{
		"the server hangs":         {},
		"the caller's time ends":   {limit: hangs / 2, want: context.DeadlineExceeded},
		"the caller gives up":      {leave: true, want: context.Canceled},
		"the caller has more time": {limit: 2 * dialect.ConnectTimeout},
	} {
		attempting(t, func(t *testing.T, _ *sql.DB, sl *slot) {
			caller, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.limit > 0 {
				caller, cancel = context.WithTimeout(caller, tt.limit)
				defer cancel()
			}
			if tt.leave {
				time.AfterFunc(hangs/2, cancel)
			}
			_, err := attempt(caller, sl, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}, func(int) {})
			if tt.want != nil && err != tt.want || tt.want == nil && !isKind(err, dialect.Gone) {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		})
	}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if err := InTime(end); !isKind(err, dialect.Gone) || errors.Is(err, end) {
			t.Errorf("InTime(%v): %v", end, err)
		}
	}
}
