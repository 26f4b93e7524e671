package otellatchkey_test

import (
	"context"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/otellatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
)

// BenchmarkObserve measures a request on a Memory, without metrics and with
// them, in turns of a thousand requests each: a machine that slows down slows
// both down. The SDK is a real one.
func BenchmarkObserve(b *testing.B) {
	m, err := otellatchkey.New(otellatchkey.WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	for _, bench := range []struct {
		name    string
		request func(ctx context.Context, l *ratelimit.Limiter)
	}{
		{"admitted", func(ctx context.Context, l *ratelimit.Limiter) {
			lock, _ := l.Acquire(ctx, "free")
			_ = lock.Unlock()
		}},
		{"refused", func(ctx context.Context, l *ratelimit.Limiter) { _, _ = l.Acquire(ctx, "busy") }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			ctx := b.Context()
			limiters := [2]*ratelimit.Limiter{
				ratelimit.OneAtATime(sqllock.NewMemory(), "export"),
				ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithObserver(m.Observe)),
			}
			for _, l := range limiters {
				if _, err := l.Acquire(ctx, "busy"); err != nil {
					b.Fatal(err)
				}
			}
			m.Limiter(limiters[1])
			const turn = 1000
			var took [2]time.Duration
			turns := 0
			for b.Loop() {
				turns++
				for i, l := range limiters {
					began := time.Now()
					for range turn {
						bench.request(ctx, l)
					}
					took[i] += time.Since(began)
				}
			}
			b.ReportMetric(0, "ns/op") // of two turns
			b.ReportMetric(float64(took[0].Nanoseconds())/float64(turns*turn), "off-ns/request")
			b.ReportMetric(float64(took[1].Nanoseconds())/float64(turns*turn), "on-ns/request")
		})
	}
}
