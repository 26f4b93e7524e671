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

// pairs measures acquire and release, on names that nobody else wants.
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
	names := newNames(callers)
	var all []contestant
	for _, c := range contenders {
		all = append(all, contestant{name: c.Name, x: callers, measure: func(ctx context.Context) (measured results.Round, err error) {
			l, err := c.Open(ctx, env, callers)
			if err != nil {
				return measured, err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			return b.measurePairs(ctx, l, names)
		}})
	}
	return all
}

// measurePairs has a caller for each of names take and give back its own, one
// after the other.
func (b *bench) measurePairs(ctx context.Context, l locks.Locks, names [][]string) (results.Round, error) {
	// Of thousands of callers the slow contenders serve each once in half a
	// second.
	turns := time.Duration(len(names)) * time.Second / 4096
	m := load.Run(ctx, load.Load{
		Callers: len(names), WarmUp: max(b.plan.warmUp, turns/2), Measure: max(b.plan.measure, turns), Usage: b.usage,
		Op: func(ctx context.Context, caller, n int) error {
			own := names[caller]
			held, err := l.Acquire(ctx, own[n%len(own)])
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

// newNames is names of its own for each caller: as many as keep the whole at
// some ten thousands, since more would measure the processor's cache.
func newNames(callers int) [][]string {
	each := min(997, max(17, 65_536/callers))
	all := make([][]string, callers)
	for caller := range all {
		for n := range each {
			all[caller] = append(all[caller], fmt.Sprintf("user-%d-%d", caller, n))
		}
	}
	return all
}
