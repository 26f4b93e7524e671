package otellatchkey_test

import (
	"context"
	"fmt"
	"log"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/otellatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
)

// One user's second request is rejected while the first one runs.
func ExampleNew() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, done := dbtest.ExampleDatabase()
	defer done()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))

	metrics, err := otellatchkey.New(otellatchkey.WithMeterProvider(provider))
	if err != nil {
		log.Fatal(err)
	}
	defer metrics.Close()

	locks, err := sqllock.Open(ctx, db, sqllock.WithObserver(metrics.SessionObserver("main")))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	metrics.Session("main", locks)

	exports := ratelimit.OneAtATime(locks, "export", ratelimit.WithObserver(metrics.Observe))
	metrics.Limiter(exports)

	for range 2 {
		if lock, err := exports.Acquire(ctx, "ada"); err == nil {
			defer lock.Unlock()
		}
	}
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &collected); err != nil {
		log.Fatal(err)
	}
	fmt.Println("admitted", requests(collected, "admitted"))
	fmt.Println("busy", requests(collected, "busy"))
	// Output:
	// admitted 1
	// busy 1
}

// requests is latchkey.limiter.requests with a result.
func requests(collected metricdata.ResourceMetrics, result string) (n int64) {
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if m.Name != "latchkey.limiter.requests" {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			if v, _ := p.Attributes.Value("result"); v.AsString() == result {
				n = p.Value
			}
		}
	}
	return n
}
