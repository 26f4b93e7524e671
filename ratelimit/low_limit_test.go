package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A wide AtMost with a low limit for an id takes no more of the server's lock
// table than requests run, however many instances ask.
func TestLowLimitOfWideSlots(t *testing.T) {
	t.Parallel()
	const (
		instances = 12
		callers   = 16
		rounds    = 25
		limit     = 4
	)
	dsn := pgtest.Database(t)
	low := ratelimit.WithLimit(func(context.Context, string) int { return limit })
	var wg sync.WaitGroup
	for range instances {
		l := ratelimit.AtMost(1024, dbtest.Session(t, "pgx", dsn), "low", low)
		for range callers {
			wg.Go(func() {
				for range rounds {
					lock, err := l.Acquire(t.Context(), "ada")
					if err != nil && !errors.Is(err, ratelimit.ErrBusy) {
						t.Error(err)
					}
					_ = lock.Unlock()
				}
			})
		}
	}
	done, watched := make(chan struct{}), make(chan int)
	db := dbtest.Open(t, "pgx", dsn)
	go func() {
		most := 0
		for {
			var n int
			err := db.QueryRow(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
			if err != nil {
				t.Error(err)
			}
			most = max(most, n)
			select {
			case <-done:
				watched <- most
				return
			default:
			}
		}
	}()
	wg.Wait()
	close(done)
	// Each Session may have some locks of its own, such as secret checks.
	if most := <-watched; most > 3*instances+limit+instances*limit {
		t.Errorf("%d advisory locks at once, want few", most)
	} else {
		t.Logf("at most %d advisory locks at once", most)
	}
}
