package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A burst is many callers at once of a limit that another instance has filled.
type burst struct {
	session *sqllock.Session
	limiter *ratelimit.Limiter
	keeper  *sqllock.Lock // of another key of the same Session
}

// newBurst fills AtMost(n) of one instance and returns another instance.
func newBurst(t testing.TB, n int) burst {
	dsn := pgtest.Database(t)
	full := ratelimit.AtMost(n, dbtest.Session(t, "pgx", dsn), "burst")
	for range n {
		if _, err := full.Acquire(t.Context(), "ada"); err != nil {
			t.Fatal(err)
		}
	}
	s := dbtest.Session(t, "pgx", dsn)
	keeper, err := s.TryLock(t.Context(), sqllock.ID(1))
	if err != nil {
		t.Fatal(err)
	}
	return burst{s, ratelimit.AtMost(n, s, "burst"), keeper}
}

// run has so many callers call at once. It returns how many were not rejected
// with ErrBusy.
func (b burst) run(ctx context.Context, callers int) (others int64) {
	var (
		wg    sync.WaitGroup
		wrong atomic.Int64
		start = make(chan struct{})
	)
	for range callers {
		wg.Go(func() {
			<-start
			lock, err := b.limiter.Acquire(ctx, "ada")
			if !errors.Is(err, ratelimit.ErrBusy) {
				wrong.Add(1)
				_ = lock.Unlock()
			}
		})
	}
	close(start)
	wg.Wait()
	return wrong.Load()
}

// A burst of callers of a full limit costs a few looks at the database. All are
// rejected as busy, and nothing of the Session is lost.
func TestBurst(t *testing.T) {
	t.Parallel()
	b := newBurst(t, 500)
	before := b.session.Stats()
	if n := b.run(t.Context(), 4096); n > 0 {
		t.Errorf("%d of 4,096 callers were not rejected as busy", n)
	}
	after := b.session.Stats()
	if after.Losses != before.Losses || b.keeper.Err() != nil {
		t.Errorf("%d connections were lost, and another lock has the error %v", after.Losses-before.Losses, b.keeper.Err())
	}
	lockertest.Eventually(t, "nothing is left", func() bool { return b.session.Stats().Held == 1 })
}

// BenchmarkBurst is a burst at a full limit.
func BenchmarkBurst(b *testing.B) {
	for _, n := range []int{50, 100, 500} {
		burst := newBurst(b, n)
		for _, callers := range []int{1024, 2048, 4096} {
			b.Run(fmt.Sprintf("limit=%d/callers=%d", n, callers), func(b *testing.B) {
				var others int64
				statements := burst.session.Stats().Exchanges
				for b.Loop() {
					others += burst.run(context.Background(), callers)
				}
				b.ReportMetric(float64(burst.session.Stats().Exchanges-statements)/float64(b.N), "statements/op")
				b.ReportMetric(float64(others)/float64(b.N), "not-busy/op")
			})
		}
	}
}

// BenchmarkFreeAfterUnlock gives a lock back while callers of the same instance
// try stacks with its key, which are rejected because another level is full.
// refused/op is how often another instance was refused right after that. A
// statement of a stack was then under way, and held the key for its length.
func BenchmarkFreeAfterUnlock(b *testing.B) {
	dsn := pgtest.Database(b)
	here, there := dbtest.Session(b, "pgx", dsn), dbtest.Session(b, "pgx", dsn)
	user, elsewhere := ratelimit.OneAtATime(here, "user"), ratelimit.OneAtATime(there, "user")
	if _, err := ratelimit.OneAtATime(there, "total").Acquire(b.Context(), "all"); err != nil {
		b.Fatal(err)
	}
	total := ratelimit.OneAtATime(here, "total")
	done := make(chan struct{})
	var rejected sync.WaitGroup
	for range 4 {
		rejected.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				locks, err := ratelimit.AcquireAll(b.Context(), ratelimit.Level{Limiter: user, ID: "ada"}, ratelimit.Level{Limiter: total, ID: "all"})
				if !errors.Is(err, ratelimit.ErrBusy) {
					b.Errorf("a stack with a full level: %v", err)
					_ = locks.Unlock()
				}
			}
		})
	}
	refused := 0
	for b.Loop() {
		lock, err := user.Acquire(b.Context(), "ada")
		for errors.Is(err, ratelimit.ErrBusy) {
			lock, err = user.Acquire(b.Context(), "ada")
		}
		if err == nil {
			err = lock.Unlock()
		}
		if err != nil {
			b.Fatal(err)
		}
		lock, err = elsewhere.Acquire(b.Context(), "ada")
		if errors.Is(err, ratelimit.ErrBusy) {
			refused++
		}
		_ = lock.Unlock()
	}
	close(done)
	rejected.Wait()
	b.ReportMetric(float64(refused)/float64(b.N), "refused/op")
}
