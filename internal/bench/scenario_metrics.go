package main

import (
	"context"
	"errors"
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
	t := turns{names: callerNames(callers)}
	for _, kind := range metered.Kinds {
		l, err := metered.Open(ctx, b.env, kind)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		if _, err := b.measurePairs(ctx, l, callers); err != nil { // it is warm afterwards
			return nil, err
		}
		t.kinds = append(t.kinds, l)
		t.took = append(t.took, make([][]time.Duration, callers))
	}
	t.began = time.Now()
	m := load.Run(ctx, load.Load{Callers: callers, Measure: b.plan.measure * time.Duration(len(t.kinds)), Op: t.pair})
	if m.FirstErr != nil {
		return nil, m.FirstErr
	}
	for k := range t.kinds {
		rounds = append(rounds, t.round(k, m.Elapsed))
	}
	return rounds, nil
}

// turns are callers who all make pairs of one kind, and then all of the next.
//
// Invariant: took[k][c] is written by caller c only.
type turns struct {
	kinds []locks.Locks
	names []string // of the callers
	began time.Time
	took  [][][]time.Duration // by kind and caller
}

// turn is the number of the turn now.
func (t *turns) turn() int { return int(time.Since(t.began) / metricsTurn) }

// pair makes a pair, which counts if its turn is not over at its end.
func (t *turns) pair(ctx context.Context, caller, _ int) error {
	turn, began := t.turn(), time.Now()
	k := turn % len(t.kinds)
	held, err := t.kinds[k].Acquire(ctx, t.names[caller])
	if err != nil {
		return err
	}
	if err := held.Release(ctx); err != nil {
		return err
	}
	if took := time.Since(began); t.turn() == turn {
		t.took[k][caller] = append(t.took[k][caller], took)
	}
	return nil
}

// round is what kind k did in its turns.
func (t *turns) round(k int, elapsed time.Duration) results.Round {
	h := load.NewHistogram()
	for _, took := range t.took[k] {
		for _, d := range took {
			_ = h.RecordValue(max(d.Nanoseconds(), 1)) // beyond a minute: not recorded
		}
	}
	return results.Round{
		Rate: float64(h.TotalCount()) * float64(len(t.kinds)) / elapsed.Seconds(),
		P50:  time.Duration(h.ValueAtQuantile(50)),
		P99:  time.Duration(h.ValueAtQuantile(99)),
	}
}
