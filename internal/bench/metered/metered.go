// Package metered has a limiter on a Session whose figures are shown by one of
// the modules for metrics, or by none. What is shown is read all the time, as a
// monitoring system does.
package metered

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/otellatchkey"
	"github.com/latchkey-go/latchkey/ratelimit/promlatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Kind is what shows the figures.
type Kind string

// The kinds.
const (
	Off           Kind = "no metrics"
	OpenTelemetry Kind = "OpenTelemetry"
	Prometheus    Kind = "Prometheus"
)

// Kinds are all of them.
var Kinds = []Kind{Off, OpenTelemetry, Prometheus}

// readEvery is how often the figures are read. Monitoring systems do it a
// hundred times less often.
const readEvery = 100 * time.Millisecond

// Locks are those of a limiter.
type Locks struct {
	limiter *ratelimit.Limiter
	session *locks.KitLocks
	stop    func()
}

// Open opens a Session and makes a limiter.
func Open(ctx context.Context, env locks.Env, kind Kind) (*Locks, error) {
	switch kind {
	case OpenTelemetry:
		return openOpenTelemetry(ctx, env)
	case Prometheus:
		return openPrometheus(ctx, env)
	}
	session, err := locks.OpenKit(ctx, env, locks.Pgx)
	if err != nil {
		return nil, err
	}
	return &Locks{limiter: ratelimit.OneAtATime(session.Session, "bench"), session: session, stop: func() {}}, nil
}

func openOpenTelemetry(ctx context.Context, env locks.Env) (*Locks, error) {
	reader := sdk.NewManualReader()
	m, err := otellatchkey.New(otellatchkey.WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader))))
	if err != nil {
		return nil, err
	}
	session, err := locks.OpenKit(ctx, env, locks.Pgx, sqllock.WithObserver(m.SessionObserver("main")))
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	l := ratelimit.OneAtATime(session.Session, "bench", ratelimit.WithObserver(m.Observe))
	m.Session("main", session.Session)
	m.Limiter(l)
	var collected metricdata.ResourceMetrics
	stop := repeat(func() { _ = reader.Collect(context.Background(), &collected) })
	return &Locks{limiter: l, session: session, stop: func() { stop(); _ = m.Close() }}, nil
}

func openPrometheus(ctx context.Context, env locks.Env) (*Locks, error) {
	session, err := locks.OpenKit(ctx, env, locks.Pgx)
	if err != nil {
		return nil, err
	}
	l := ratelimit.OneAtATime(session.Session, "bench")
	m, registry := promlatchkey.New(), prometheus.NewRegistry()
	m.Session("main", session.Session)
	m.Limiter(l)
	registry.MustRegister(m)
	return &Locks{limiter: l, session: session, stop: repeat(func() { _, _ = registry.Gather() })}, nil
}

// repeat calls read until stop is called.
func repeat(read func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		ticker := time.NewTicker(readEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				read()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); reading.Wait() }
}

// Acquire implements [locks.Locks].
func (l *Locks) Acquire(ctx context.Context, name string) (locks.Held, error) {
	lock, err := l.limiter.Acquire(ctx, name)
	switch {
	case err == nil:
		return held{lock}, nil
	case errors.Is(err, ratelimit.ErrBusy):
		return nil, locks.ErrBusy
	}
	return nil, err
}

// Close implements [locks.Locks].
func (l *Locks) Close() error {
	l.stop()
	return l.session.Close()
}

type held struct{ lock *sqllock.Lock }

func (h held) Release(context.Context) error { return h.lock.Unlock() }
