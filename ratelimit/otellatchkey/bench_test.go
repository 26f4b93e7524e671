package otellatchkey_test

import (
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/otellatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
)

// What OpenTelemetry costs the pairs of 64 callers: the time of a pair with it, as
// a ratio to that without. It is the median of rounds that have both.
func BenchmarkOn(b *testing.B) {
	const callers, each, rounds = 64, 500, 21
	metrics, err := otellatchkey.New(otellatchkey.WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))))
	if err != nil {
		b.Fatal(err)
	}
	defer metrics.Close()
	db, err := sql.Open("pgx", pgtest.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	limiter := func(name string, opts []sqllock.Option, limits ...ratelimit.Option) *ratelimit.Limiter {
		s, err := sqllock.Open(b.Context(), db, opts...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		return ratelimit.OneAtATime(s, sqllock.Namespace(name), limits...)
	}
	off := limiter("off", nil)
	on := limiter("on", []sqllock.Option{sqllock.WithObserver(metrics.SessionObserver("main"))}, ratelimit.WithObserver(metrics.Observe))
	metrics.Limiter(on)
	pairs := func(l *ratelimit.Limiter) time.Duration {
		began := time.Now()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range each {
					lock, err := l.Acquire(b.Context(), fmt.Sprint(i))
					if err != nil {
						b.Error(err)
						return
					}
					_ = lock.Unlock()
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	for b.Loop() {
		var ratios []float64
		for n := range rounds {
			if n%2 == 0 {
				with := pairs(on)
				ratios = append(ratios, float64(with)/float64(pairs(off)))
			} else {
				without := pairs(off)
				ratios = append(ratios, float64(pairs(on))/float64(without))
			}
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[rounds/2], "times-as-long")
	}
}
