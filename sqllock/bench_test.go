package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
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

// BenchmarkStack is BenchmarkPair on two Sessions, with one limit or with a
// stack of three: one at a time for each caller, six for each tenant, which has
// four callers, and 600 in all. rejected is the part of the calls that found a
// level full, and statements is how many there are for each call.
func BenchmarkStack(b *testing.B) {
	dsn := pgtest.Database(b)
	ns := sqllock.Namespace("bench")
	slots := func(id string, n int) (keys []sqllock.Key) {
		for i := range n {
			keys = append(keys, ns.SlotKey(id, i))
		}
		return keys
	}
	total := slots("all", 600)
	for _, levels := range []int{1, 3} {
		for _, callers := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("levels=%d/callers=%d", levels, callers), func(b *testing.B) {
				sessions := []*sqllock.Session{session(b, "pgx", dsn), session(b, "pgx", dsn)}
				groups := make([][][]sqllock.Key, callers)
				for i := range groups {
					groups[i] = [][]sqllock.Key{slots(fmt.Sprint("user", i), 1), slots(fmt.Sprint("tenant", i/4), 6), total}
				}
				var rejected atomic.Int64
				b.ReportAllocs()
				b.ResetTimer()
				share(b, callers, func(caller, _ int) {
					s := sessions[caller%2]
					if levels == 1 {
						lock, err := s.TryLock(context.Background(), groups[caller][0][0])
						if err != nil {
							b.Error(err)
						}
						_ = lock.Unlock()
						return
					}
					locks, err := lockertest.TryEach(context.Background(), s, groups[caller])
					if errors.Is(err, sqllock.ErrHeld) {
						rejected.Add(1)
					} else if err != nil {
						b.Error(err)
					}
					_ = locks.Unlock()
				})
				b.StopTimer()
				b.ReportMetric(float64(rejected.Load())/float64(b.N), "rejected/op")
				b.ReportMetric(float64(sessions[0].Stats().Exchanges+sessions[1].Stats().Exchanges)/float64(b.N), "statements/op")
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
