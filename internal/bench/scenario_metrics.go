package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/metered"
	"github.com/latchkey-go/latchkey/internal/bench/report"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// metricsTurn is how long the pairs of one kind take their turn. The kinds are so
// close to each other that rounds of their own would show the machine's noise
// alone: what disturbs the machine for longer than a turn disturbs all kinds.
const metricsTurn = 10 * time.Millisecond

// withMetrics measures pairs through a limiter, with metrics on and off.
func withMetrics(ctx context.Context, b *bench) error {
	for _, callers := range []int{1, 64} {
		series := make([]*results.Series, len(metered.Kinds))
		for k, kind := range metered.Kinds {
			series[k] = &results.Series{Scenario: "metrics", Contender: report.Limiter, Variant: string(kind), X: callers}
		}
		for range b.plan.rounds {
			rounds, err := b.measureInTurns(ctx, callers)
			if err != nil {
				return err
			}
			for k, round := range rounds {
				series[k].Rounds = append(series[k].Rounds, round)
			}
		}
		b.results.Series = append(b.results.Series, series...)
	}
	return nil
}

// measureInTurns measures a round of each kind.
func (b *bench) measureInTurns(ctx context.Context, callers int) (rounds []results.Round, err error) {
	all := make([]locks.Locks, len(metered.Kinds))
	for k, kind := range metered.Kinds {
		l, err := metered.Open(ctx, b.env, kind)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		all[k] = l
		if _, err := b.measurePairs(ctx, l, callers); err != nil { // it is warm afterwards
			return nil, err
		}
	}
	names := callerNames(callers)
	took := make([][][]time.Duration, len(all)) // by kind and caller
	for k := range took {
		took[k] = make([][]time.Duration, callers)
	}
	var turn atomic.Int64
	ticks := time.NewTicker(metricsTurn)
	defer ticks.Stop()
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		for {
			select {
			case <-ticks.C:
				turn.Add(1)
			case <-stopped:
				return
			}
		}
	}()
	m := load.Run(ctx, load.Load{Callers: callers, Measure: b.plan.measure * time.Duration(len(all)), Op: func(ctx context.Context, caller, _ int) error {
		now := turn.Load()
		k, began := int(now)%len(all), time.Now()
		held, err := all[k].Acquire(ctx, names[caller])
		if err != nil {
			return err
		}
		err = held.Release(ctx)
		if d := time.Since(began); err == nil && turn.Load() == now { // not at the change of turns
			took[k][caller] = append(took[k][caller], d)
		}
		return err
	}})
	if m.FirstErr != nil {
		return nil, m.FirstErr
	}
	for _, byCaller := range took {
		h := load.NewHistogram()
		for _, of := range byCaller {
			for _, d := range of {
				_ = h.RecordValue(max(d.Nanoseconds(), 1)) // beyond a minute: not recorded
			}
		}
		rounds = append(rounds, results.Round{
			Rate: float64(h.TotalCount()) * float64(len(all)) / m.Elapsed.Seconds(),
			P50:  time.Duration(h.ValueAtQuantile(50)), P99: time.Duration(h.ValueAtQuantile(99)),
		})
	}
	return rounds, nil
}
