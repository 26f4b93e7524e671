package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A pool that is made too small after Open keeps a Session from connecting
// again, and calls report that. Once the pool is large enough, the Session
// serves again.
func TestPoolNarrowedAfterOpen(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		s := sessionOn(t, db)
		db.SetMaxOpenConns(1)
		lock := take(t, s, 0, 1)[0] // on the connection that is open already
		observer := open(t, driver, dsn)
		terminate(t, observer)
		<-lock.Context().Done()
		lockertest.Eventually(t, "calls fail, and say what to change", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(0))
			if err == nil {
				_ = lock.Unlock()
				t.Fatal("TryLock on a pool of one connection: no error")
			}
			return !errors.Is(err, sqllock.ErrUnavailable) && strings.Contains(err.Error(), "allow two or more")
		})
		waited := make(chan error, 1)
		go func() {
			lock, err := s.Lock(context.Background(), sqllock.ID(0))
			_ = lock.Unlock()
			waited <- err
		}()
		lockertest.Eventually(t, "a caller waits", func() bool { return s.Stats().Waiting == 1 })
		db.SetMaxOpenConns(2)
		if err := <-waited; err != nil {
			t.Errorf("Lock while the pool was too small: %v", err)
		}
		take(t, s, 0, 1)
	})
}

// A Session needs two connections of its pool at most times: Open rejects a pool
// of one, and says what to change.
func TestOpenRefusesPoolOfOne(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		db.SetMaxOpenConns(1)
		rejects(t, db, dsn, sqllock.ErrConfig, "allow two or more")
		db.SetMaxOpenConns(2)
		sessionOn(t, db)
	})
}
