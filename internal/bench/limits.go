package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/otellatchkey"
	"github.com/latchkey-go/latchkey/ratelimit/promlatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
)

// stacks measures requests that are limited on one level or on three. Half of the
// callers are on each of two instances. A tenant has 8 users.
func stacks(ctx context.Context, b *bench) error {
	const single = "one limit per user, OneAtATime"
	var all []contestant
	for _, of := range []struct {
		name     string
		from, to int // levels
	}{
		{single, 0, 1}, {"one limit per tenant, AtMost(10)", 1, 2}, {"one limit for all, AtMost(600)", 2, 3}, {"all three", 0, 3},
	} {
		all = append(all, contestant{name: of.name, against: single, measure: func(ctx context.Context) (r round, err error) {
			const half, users = 256, 8
			var callers [][]ratelimit.Level
			for range 2 {
				kit, err := locks.OpenKit(ctx, b.env, locks.Pgx)
				if err != nil {
					return r, err
				}
				defer func() { err = errors.Join(err, kit.Close()) }()
				user := ratelimit.OneAtATime(kit.Session, "user")
				tenant := ratelimit.AtMost(10, kit.Session, "tenant")
				total := ratelimit.AtMost(600, kit.Session, "total")
				for range half {
					n := len(callers)
					levels := []ratelimit.Level{{Limiter: user, ID: strconv.Itoa(n)}, {Limiter: tenant, ID: strconv.Itoa(n / users)}, {Limiter: total, ID: "all"}}
					callers = append(callers, levels[of.from:of.to])
				}
			}
			return b.run(ctx, load.Load{Callers: len(callers), Op: func(ctx context.Context, caller int) error {
				if levels := callers[caller]; len(levels) == 1 {
					lock, err := levels[0].Limiter.Acquire(ctx, levels[0].ID)
					if err != nil {
						return err
					}
					return lock.Unlock()
				}
				stack, err := ratelimit.AcquireAll(ctx, callers[caller]...)
				if err != nil {
					return err
				}
				return stack.Unlock()
			}})
		}})
	}
	return b.interleave(ctx, all)
}

// metricsTurn is how long the pairs of one kind take their turn. The kinds are so
// close to each other that rounds of their own would show the machine's noise
// alone. What disturbs the machine for longer than a turn disturbs all kinds.
const metricsTurn = 10 * time.Millisecond

// metrics measures pairs through limiters with and without metrics. All kinds
// take turns in each round.
func metrics(ctx context.Context, b *bench) error {
	kinds := []struct {
		name string
		open func(context.Context, locks.Env) (*metered, error)
	}{{"no metrics", openPlain}, {"OpenTelemetry", openOpenTelemetry}, {"Prometheus", openPrometheus}}
	for _, callers := range []int{1, 64} {
		all := make([]*series, len(kinds))
		for k, kind := range kinds {
			all[k] = &series{contestant: contestant{name: kind.name, x: strconv.Itoa(callers) + " callers", against: kinds[0].name}}
		}
		for range b.plan.rounds {
			var open []*metered
			var err error
			for _, kind := range kinds {
				m, e := kind.open(ctx, b.env)
				if err = e; err != nil {
					break
				}
				open = append(open, m)
			}
			if err == nil {
				err = b.measureTurns(ctx, callers, open, all)
			}
			for _, m := range open {
				m.stop()
				err = errors.Join(err, m.session.Close())
			}
			if err != nil {
				return err
			}
		}
		b.series = append(b.series, all...)
	}
	return nil
}

// measureTurns adds a round to the series of each kind.
func (b *bench) measureTurns(ctx context.Context, callers int, kinds []*metered, all []*series) error {
	users, began := names(callers), time.Now()
	turn := func() int { return int((time.Since(began)) / metricsTurn) }
	took := make([][][]time.Duration, len(kinds)) // by kind and caller, who alone writes there
	for k := range took {
		took[k] = make([][]time.Duration, callers)
	}
	m := load.Run(ctx, load.Load{
		Callers: callers, Measure: (b.plan.warmUp + b.plan.measure) * time.Duration(len(kinds)),
		Op: func(ctx context.Context, caller int) error {
			mine, start := turn(), time.Now()
			k := mine % len(kinds)
			lock, err := kinds[k].limiter.Acquire(ctx, users[caller])
			if err == nil {
				err = lock.Unlock()
			}
			if err == nil && turn() == mine && start.Sub(began) > b.plan.warmUp { // a pair counts if its turn is not over at its end
				took[k][caller] = append(took[k][caller], time.Since(start))
			}
			return err
		},
	})
	for k := range kinds {
		h := load.NewHistogram()
		for _, of := range took[k] {
			for _, d := range of {
				_ = h.RecordValue(max(d.Nanoseconds(), 1)) // beyond a minute: not recorded
			}
		}
		measured := (m.Elapsed - b.plan.warmUp).Seconds() / float64(len(kinds))
		all[k].rounds = append(all[k].rounds, round{
			rate: float64(h.TotalCount()) / measured, p50: time.Duration(h.ValueAtQuantile(50)), p99: time.Duration(h.ValueAtQuantile(99)),
		})
	}
	return m.FirstErr
}

// A metered is a limiter on a Session whose figures are read all the time, as a
// monitoring system does a hundred times less often.
type metered struct {
	limiter *ratelimit.Limiter
	session *locks.KitLocks
	stop    func()
}

func openPlain(ctx context.Context, env locks.Env) (*metered, error) {
	session, err := locks.OpenKit(ctx, env, locks.Pgx)
	if err != nil {
		return nil, err
	}
	return &metered{ratelimit.OneAtATime(session.Session, "bench"), session, func() {}}, nil
}

func openOpenTelemetry(ctx context.Context, env locks.Env) (*metered, error) {
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
	return &metered{l, session, func() { stop(); _ = m.Close() }}, nil
}

func openPrometheus(ctx context.Context, env locks.Env) (*metered, error) {
	plain, err := openPlain(ctx, env)
	if err != nil {
		return nil, err
	}
	m, registry := promlatchkey.New(), prometheus.NewRegistry()
	m.Session("main", plain.session.Session)
	m.Limiter(plain.limiter)
	registry.MustRegister(m)
	plain.stop = repeat(func() { _, _ = registry.Gather() })
	return plain, nil
}

// repeat calls read ten times a second until stop is called.
func repeat(read func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
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
