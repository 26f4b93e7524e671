package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// quickContenders are those that the quick mode's ratios are about.
var quickContenders = []string{
	locks.KitPgx, locks.KitPQ, locks.PerConnectionPgx, locks.PerConnectionPQ,
	"go-redis", "go-redis AutoPipeline", "rueidis", locks.RueidisTuned,
}

// pairs measures acquire and release. No two callers want the same name.
func pairs(ctx context.Context, b *bench) error {
	contenders, callers := locks.All(), []int{1, 8, 64, 512, 4096}
	if b.plan.quick {
		contenders, callers = locks.Named(quickContenders...), []int{1, 8, 64, 512}
	}
	for _, n := range callers {
		competing := contenders
		if b.plan.quick && n == 1 {
			competing = slices.Concat(contenders, locks.Named(locks.SelectPgx, locks.SelectPQ))
		}
		if err := b.interleave(ctx, "pairs", b.pairContestants(competing, b.env, n)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) pairContestants(contenders []locks.Contender, env locks.Env, callers int) []contestant {
	var all []contestant
	for _, c := range contenders {
		all = append(all, contestant{name: c.Name, x: callers, measure: func(ctx context.Context) (measured results.Round, err error) {
			l, err := c.Open(ctx, env, callers)
			if err != nil {
				return measured, err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			return b.measurePairs(ctx, l, callers)
		}})
	}
	return all
}

// measurePairs has so many callers take and give back locks, each that of a name of
// its own: users who send one request after the other.
func (b *bench) measurePairs(ctx context.Context, l locks.Locks, callers int) (results.Round, error) {
	names := callerNames(callers)
	// Of thousands of callers the slow contenders serve each once in half a
	// second.
	turns := time.Duration(callers) * time.Second / 4096
	m := load.Run(ctx, load.Load{
		Callers: callers, WarmUp: max(b.plan.warmUp, turns/2), Measure: max(b.plan.measure, turns), Usage: b.usage,
		Op: func(ctx context.Context, caller, _ int) error {
			held, err := l.Acquire(ctx, names[caller])
			if err != nil {
				return err
			}
			return held.Release(ctx)
		},
	})
	if m.Ops == 0 && m.FirstErr != nil {
		return results.Round{}, m.FirstErr
	}
	return round(m), nil
}

// callerNames are names of locks, one for each caller.
func callerNames(callers int) []string {
	names := make([]string, callers)
	for i := range names {
		names[i] = fmt.Sprintf("user-%d", i)
	}
	return names
}
