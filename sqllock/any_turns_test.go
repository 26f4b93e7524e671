package sqllock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The callers of one process hand two keys to each other without end. A caller
// of another process gets one of them all the same, as it would get a single
// key.
func TestLockAnyTakesTurnsWithOtherProcesses(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	busy, other := session(t, "pgx", dsn), session(t, "pgx", dsn)
	keys := []sqllock.Key{sqllock.ID(1), sqllock.ID(2)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				lock, err := busy.LockAny(ctx, keys...)
				if err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
				_ = lock.Unlock()
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	for _, key := range keys {
		for {
			lock, err := other.TryLock(ctx, key)
			if err == nil {
				_ = lock.Unlock()
				continue
			}
			break
		}
	}
	bounded, end := context.WithTimeout(ctx, 30*time.Second)
	defer end()
	lock, err := other.LockAny(bounded, keys...)
	if err != nil {
		t.Fatalf("LockAny of another process: %v, want a lock", err)
	}
	_ = lock.Unlock()
}
