package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A heldBackConn calls exec around each statement of another driver's connection.
type heldBackConn struct {
	wrappedConn
	exec func(query string, send func() (driver.Result, error)) (driver.Result, error)
}

func (c heldBackConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(query, func() (driver.Result, error) { return c.wrappedConn.ExecContext(ctx, query, args) })
}

// holdingBack is a Connector of heldBackConns.
type holdingBack struct {
	driver.Connector
	exec func(query string, send func() (driver.Result, error)) (driver.Result, error)
}

func (h holdingBack) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return heldBackConn{wrappedConn{parent: c}, h.exec}, nil
}

// A call that waits looks once whether the locks of its context are in the same
// database. That statement is over when the call returns, so it never comes
// between those of the owner.
func TestConnLockReturnsAfterItsLook(t *testing.T) {
	eachDriver(t, func(t *testing.T, driverName, dsn string) {
		registry(t, driverName, dsn)
		s := registering(t, driverName, dsn)
		for _, tt := range []struct {
			name  string
			grant bool
		}{{"its context ends", false}, {"the key is handed over", true}} {
			var underWay atomic.Bool
			looks, returned := make(chan struct{}, 1), make(chan struct{})
			other := sql.OpenDB(holdingBack{connectorOf(t, driverName, dsn), func(query string, send func() (driver.Result, error)) (driver.Result, error) {
				if strings.Contains(query, "pg_stat_get_activity(") {
					underWay.Store(true)
					defer underWay.Store(false)
					looks <- struct{}{}
					select {
					case <-returned: // too early
					case <-time.After(100 * time.Millisecond):
					}
				}
				return send()
			}})
			t.Cleanup(func() { _ = other.Close() })
			locks := sqllock.OnConn(dbtest.Conn(t, other))
			key := sqllock.ID(7)
			holder, err := locks.TryLock(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			onSession := lockOf(t, s, sqllock.ID(8))
			ctx, cancel := context.WithCancel(t.Context())
			bound, unbind := onSession.Bind(ctx)
			done := make(chan error, 1)
			go func() {
				lock, err := locks.Lock(bound, key)
				if underWay.Load() {
					t.Errorf("%s: Lock returns while its look is under way", tt.name)
				}
				close(returned)
				_ = lock.Unlock()
				done <- err
			}()
			<-looks
			if tt.grant {
				if err := holder.Unlock(); err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
			} else {
				cancel()
			}
			if err := <-done; err != nil != !tt.grant || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", tt.name, err)
			}
			unbind()
			cancel()
			_ = holder.Unlock()
			_ = onSession.Unlock()
		}
	})
}
