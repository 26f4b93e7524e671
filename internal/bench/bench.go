package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
)

// A scenario is one comparison: it measures its contestants and leaves the
// figures in a bench.
type scenario struct {
	name, text string
	quick      bool
	run        func(ctx context.Context, b *bench) error
}

// A bench is one run of the benchmarks.
type bench struct {
	env      locks.Env
	server   func() time.Duration // processor time of both servers so far
	plan     plan
	progress io.Writer
	series   []*series // of the scenario under way
}

// A contestant is measured once in each round.
type contestant struct {
	name    string
	x       string // what distinguishes it from others of its name
	against string // the name of the contestant with the same x that it is compared with
	redis   bool   // also compare the others with the fastest of these
	measure func(ctx context.Context) (round, error)
}

// A round is what one measurement of a contestant found.
type round struct {
	rate           float64 // operations per second
	p50, p99       time.Duration
	client, server time.Duration // processor time of an operation; 0: not measured
	errors         int64
}

// A series is all rounds of a contestant.
type series struct {
	contestant
	rounds []round
}

// interleave measures contestants in rounds: each round has all of them, shortly
// after each other, so that a machine that slows down slows all of them down. Each
// time they come in another order, so that none always follows the same one. One
// that fails leaves; the others' figures count.
func (b *bench) interleave(ctx context.Context, contestants []contestant) error {
	all := make([]*series, len(contestants))
	for i, c := range contestants {
		all[i] = &series{contestant: c}
	}
	var failed []error
	for n := range b.plan.rounds {
		for _, i := range rand.New(rand.NewPCG(uint64(n), uint64(len(all)))).Perm(len(all)) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if all[i] == nil {
				continue
			}
			runtime.GC() // the one before leaves its garbage
			r, err := all[i].measure(ctx)
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", all[i].name, err))
				all[i] = nil
				continue
			}
			if !b.plan.quick {
				fmt.Fprintf(b.progress, "round %d, %s, %s: %.0f/s, p50 %v, p99 %v\n", n+1, all[i].name, all[i].x, r.rate, r.p50, r.p99)
			}
			all[i].rounds = append(all[i].rounds, r)
		}
	}
	b.series = append(b.series, slices.DeleteFunc(all, func(s *series) bool { return s == nil })...)
	return errors.Join(failed...)
}

// run measures l with the plan's times and the servers' meter.
func (b *bench) run(ctx context.Context, l load.Load) (round, error) {
	l.WarmUp, l.Measure, l.Server = max(l.WarmUp, b.plan.warmUp), max(l.Measure, b.plan.measure), b.server
	m := load.Run(ctx, l)
	if m.Ops == 0 && m.FirstErr != nil {
		return round{}, m.FirstErr
	}
	r := round{
		rate: m.Rate(), p50: time.Duration(m.Latency.ValueAtQuantile(50)), p99: time.Duration(m.Latency.ValueAtQuantile(99)), errors: m.Errors,
	}
	if m.Ops > 0 {
		r.client, r.server = m.Client/time.Duration(m.Ops), m.Server/time.Duration(m.Ops)
	}
	return r, nil
}

// names are names of locks, one for each caller.
func names(callers int) []string {
	all := make([]string, callers)
	for i := range all {
		all[i] = fmt.Sprintf("user-%d", i)
	}
	return all
}
