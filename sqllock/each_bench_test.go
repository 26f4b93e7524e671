package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkTryEach measures the engine alone, as BenchmarkEngine does. Each
// operation is a TryEach and an Unlock of its locks: one key of the caller, one
// of six of its tenant, which has four callers, and one of 512 in all. The first case has only the key
// of the caller.
func BenchmarkTryEach(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 512} {
		for levels := 1; levels <= 3; levels++ {
			b.Run(fmt.Sprintf("callers=%d/levels=%d", callers, levels), func(b *testing.B) { benchmarkTryEach(b, callers, levels) })
		}
	}
}

func benchmarkTryEach(b *testing.B, callers, levels int) {
	s, err := Open(context.Background(), new(sql.DB), func(o *options) { o.dialect = nullServer{} })
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var (
		wg    sync.WaitGroup
		next  atomic.Int64
		total = slots(1, 512)
	)
	b.ReportAllocs()
	b.ResetTimer()
	for caller := range callers {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		wg.Go(func() {
			groups := [][]Key{{ID(int64(1000 + caller))}, slots(2000+caller/4, 6), total}[:levels]
			for next.Add(1) <= int64(b.N) {
				locks, err := s.TryEach(ctx, groups)
				if err != nil {
					b.Error(err)
					return
				}
				_ = locks.Unlock()
			}
		})
	}
	wg.Wait()
}

// slots returns the keys of a limit of n.
func slots(id, n int) (keys []Key) {
	for i := range n {
		keys = append(keys, Namespace("bench").SlotKey(fmt.Sprint(id), i))
	}
	return keys
}
