package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// A scenario is one comparison: it measures its contestants round by round and
// leaves the figures in a bench's results.
type scenario struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

// A bench is one run of the benchmarks.
type bench struct {
	env     locks.Env
	usage   func() load.Usage // processor time of this process and of both servers
	plan    plan
	results *results.Results
	log     *slog.Logger
}

// A plan is how much to measure.
type plan struct {
	quick   bool
	rounds  int
	warmUp  time.Duration
	measure time.Duration
}

// A contestant is measured once in each round.
type contestant struct {
	name    string // the contender's
	variant string
	x       int
	measure func(ctx context.Context) (results.Round, error)
}

// interleave measures contestants in rounds: each round has all of them, shortly
// after each other, so that a machine that slows down slows all of them down. Each
// time they come in another order, so that none always follows the same one.
func (b *bench) interleave(ctx context.Context, scenario string, contestants []contestant) error {
	series := make([]*results.Series, len(contestants))
	for i, c := range contestants {
		series[i] = &results.Series{Scenario: scenario, Contender: c.name, Variant: c.variant, X: c.x}
	}
	var failed []error
	for round := range b.plan.rounds {
		order := rand.New(rand.NewPCG(uint64(round), uint64(len(contestants)))).Perm(len(contestants))
		for _, i := range order {
			runtime.GC() // the one before leaves its garbage
			c := contestants[i]
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if series[i] == nil {
				continue
			}
			measured, err := c.measure(ctx)
			if err != nil { // it leaves; the others' figures count
				failed = append(failed, fmt.Errorf("%s: %s: %w", scenario, c.name, err))
				series[i] = nil
				continue
			}
			b.log.Info("measured", "scenario", scenario, "contender", c.name, "variant", c.variant,
				"x", c.x, "round", round, "rate", int64(measured.Rate), "p50", measured.P50, "p99", measured.P99)
			series[i].Rounds = append(series[i].Rounds, measured)
		}
	}
	b.results.Series = append(b.results.Series, slices.DeleteFunc(series, func(s *results.Series) bool { return s == nil })...)
	return errors.Join(failed...)
}

// round is m as a round's figures.
func round(m *load.Measurement) results.Round {
	r := results.Round{
		Rate:   m.Rate(),
		P50:    time.Duration(m.Latency.ValueAtQuantile(50)),
		P99:    time.Duration(m.Latency.ValueAtQuantile(99)),
		Errors: m.Errors,
	}
	if m.Ops > 0 {
		r.ClientCPU = m.Usage.Client / time.Duration(m.Ops)
		r.ServerCPU = m.Usage.Server / time.Duration(m.Ops)
	}
	return r
}
