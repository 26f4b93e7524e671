package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/report"
	"github.com/latchkey-go/latchkey/internal/bench/results"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// The levels of the scenario. Each has room for all callers, since the scenario
// measures what an admission costs, not how long callers wait.
const (
	stackCallers = 512
	tenantUsers  = 8 // of one tenant, each with one request at a time
	tenantLimit  = 10
	totalLimit   = 600
)

// stacks measures requests that are limited on one level or on three. Half of
// the callers are on each of two instances.
func stacks(ctx context.Context, b *bench) error {
	var all []contestant
	for _, of := range []struct {
		variant string
		choose  func(stackLevels) []ratelimit.Level
	}{
		{report.StackOfUser, func(l stackLevels) []ratelimit.Level { return l[:1] }},
		{report.StackOfTotal, func(l stackLevels) []ratelimit.Level { return l[2:] }},
		{report.StackOfThree, func(l stackLevels) []ratelimit.Level { return l[:] }},
	} {
		all = append(all, contestant{name: report.Limiter, variant: of.variant, x: stackCallers, measure: func(ctx context.Context) (results.Round, error) {
			return b.measureStack(ctx, of.choose)
		}})
	}
	return b.interleave(ctx, "stacks", all)
}

// stackLevels are those of one caller: the user's, the tenant's, and that of all.
type stackLevels [3]ratelimit.Level

// measureStack measures pairs of the levels that choose returns.
func (b *bench) measureStack(ctx context.Context, choose func(stackLevels) []ratelimit.Level) (measured results.Round, err error) {
	callers := make([][]ratelimit.Level, 0, stackCallers)
	for range 2 {
		kit, err := locks.OpenKit(ctx, b.env, locks.Pgx)
		if err != nil {
			return measured, err
		}
		defer func() { err = errors.Join(err, kit.Close()) }()
		user := ratelimit.OneAtATime(kit.Session, "user")
		tenant := ratelimit.AtMost(tenantLimit, kit.Session, "tenant")
		total := ratelimit.AtMost(totalLimit, kit.Session, "total")
		for range stackCallers / 2 {
			n := len(callers)
			callers = append(callers, choose(stackLevels{
				{Limiter: user, ID: strconv.Itoa(n)},
				{Limiter: tenant, ID: strconv.Itoa(n / tenantUsers)},
				{Limiter: total, ID: "all"},
			}))
		}
	}
	m := load.Run(ctx, load.Load{
		Callers: stackCallers, WarmUp: b.plan.warmUp, Measure: b.plan.measure, Usage: b.usage,
		Op: func(ctx context.Context, caller, _ int) error { return stackPair(ctx, callers[caller]) },
	})
	if m.FirstErr != nil {
		return measured, m.FirstErr
	}
	return round(m), nil
}

// stackPair acquires a place on each level, and releases them.
func stackPair(ctx context.Context, levels []ratelimit.Level) error {
	if len(levels) == 1 {
		lock, err := levels[0].Limiter.Acquire(ctx, levels[0].ID)
		if err != nil {
			return err
		}
		return lock.Unlock()
	}
	held, err := ratelimit.AcquireAll(ctx, levels...)
	if err != nil {
		return err
	}
	return held.Unlock()
}
