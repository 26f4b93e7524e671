package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// BenchmarkPair acquires and releases a lock, each caller on a key of its own.
// ns/op is the time of a pair across all callers.
func BenchmarkPair(b *testing.B) {
	for _, driver := range pgtest.Drivers() {
		dsn := pgtest.Database(b)
		for _, callers := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("%s/callers=%d", driver, callers), func(b *testing.B) {
				s := session(b, driver, dsn)
				b.ReportAllocs()
				b.ResetTimer()
				share(b, callers, func(caller, _ int) {
					lock, err := s.TryLock(context.Background(), sqllock.ID(int64(caller)))
					if err != nil {
						b.Error(err)
						return
					}
					_ = lock.Unlock()
				})
				b.ReportMetric(float64(s.Stats().Exchanges)/float64(b.N), "statements/op")
			})
		}
	}
}

// share divides b.N calls among callers.
func share(b *testing.B, callers int, call func(caller, n int)) {
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	for caller := range callers {
		wg.Go(func() {
			for {
				n := int(next.Add(1))
				if n > b.N {
					return
				}
				call(caller, n)
			}
		})
	}
	wg.Wait()
}

// BenchmarkRefusal is a second caller in the process, which is rejected from
// memory. The hash of the key is included.
func BenchmarkRefusal(b *testing.B) {
	s := session(b, "pgx", pgtest.Database(b))
	ns := sqllock.Namespace("bench")
	if _, err := s.TryLock(context.Background(), ns.Key("user-1")); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.TryLock(context.Background(), ns.Key("user-1")); !errors.Is(err, sqllock.ErrHeld) {
			b.Fatal(err)
		}
	}
}
