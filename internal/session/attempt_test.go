package session

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// In a full pool an attempt that hangs ends for the next one, which needs its
// connections. The last one has time for a slow server.
func TestAttemptsInAFullPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Session{db: new(sql.DB), options: Defaults(), connecting: make(chan struct{}, 1)}
		s.options.Suit()
		s.db.SetMaxOpenConns(1)
		var begun, running atomic.Int32
		got, err := attempt(t.Context(), newSlot(s), func(ctx context.Context) (int32, error) {
			n := begun.Add(1)
			defer running.Add(-1)
			running.Add(1)
			slow, cancel := context.WithTimeout(ctx, 2*hangs)
			defer cancel()
			if time.Sleep(hangs / 2); running.Load() != 1 {
				t.Errorf("%d attempts at one time", running.Load())
			}
			<-slow.Done()
			return n, ctx.Err()
		}, func(int32) {})
		if err != nil || got != maxInFull {
			t.Errorf("attempt %d has connected: %v, want attempt %d", got, err, maxInFull)
		}
	})
}
