package promlatchkey_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/promlatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// One user's second request is rejected while the first one runs.
func ExampleNew() {
	ctx := context.Background()
	db, done := dbtest.ExampleDatabase()
	defer done()
	registry, mux := prometheus.NewRegistry(), http.NewServeMux()

	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	exports := ratelimit.OneAtATime(locks, "export")

	metrics := promlatchkey.New()
	metrics.Session("main", locks)
	metrics.Limiter(exports)
	registry.MustRegister(metrics)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	for range 2 {
		if lock, err := exports.Acquire(ctx, "ada"); err == nil {
			defer lock.Unlock()
		}
	}
	scrape := httptest.NewRecorder()
	mux.ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "latchkey_limiter_requests_total") && !strings.HasSuffix(line, " 0\n") {
			fmt.Print(line)
		}
	}
	// Output:
	// latchkey_limiter_requests_total{limiter="export",result="admitted"} 1
	// latchkey_limiter_requests_total{limiter="export",result="busy"} 1
}

// Leaders and findings.
func ExampleCollector_Finding() {
	ctx, cancel := context.WithCancel(context.Background())
	db, done := dbtest.ExampleDatabase()
	defer done()
	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	metrics := promlatchkey.New()

	nightly := election.New(locks, sqllock.Namespace("job").Key("nightly"))
	metrics.Campaign("nightly", nightly)

	watched := make(chan error, 1)
	go func() { watched <- lockwatch.Watch(ctx, db, metrics.Finding) }()

	cancel()
	fmt.Println(<-watched)
	// Output: context canceled
}
