package sqllock_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

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
			other := openWrapped(t, driverName, dsn, func(c driver.Conn) driver.Conn {
				return execConn{hiding(c), func(query string, send func(string) (driver.Result, error)) (driver.Result, error) {
					if strings.Contains(query, "pg_stat_get_activity(") {
						underWay.Store(true)
						defer underWay.Store(false)
						looks <- struct{}{}
						select {
						case <-returned: // too early
						case <-time.After(100 * time.Millisecond):
						}
					}
					return send(query)
				}}
			})
			locks := sqllock.OnConn(connection(t, other))
			key := sqllock.ID(7)
			holder := mustLock(t, locks, key)
			onSession := mustLock(t, s, sqllock.ID(8))
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
				unlock(t, holder)
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
