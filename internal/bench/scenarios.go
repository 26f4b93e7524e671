package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// contest measures the contenders of the plan for so many callers.
func (b *bench) contest(ctx context.Context, callers int, measure func(context.Context, contender) (round, error)) error {
	var all []contestant
	for _, c := range contenders() {
		if b.plan.quick && !c.quick {
			continue
		}
		all = append(all, contestant{name: c.name, x: fmt.Sprintf("%d callers", callers), against: c.against, redis: c.redis,
			measure: func(ctx context.Context) (round, error) { return measure(ctx, c) }})
	}
	return b.interleave(ctx, all)
}

// run measures op with the plan's times, or longer ones.
func (b *bench) run(ctx context.Context, callers int, op func(ctx context.Context, caller int) error) (round, error) {
	// Of thousands of callers the slow contenders serve each once in half a second.
	turns := time.Duration(callers) * time.Second / 4096
	return load{callers: callers, warmUp: max(b.plan.warmUp, turns/2), measure: max(b.plan.measure, turns), op: op}.run(ctx)
}

// pairs measures acquire and release. Each caller has a name of its own, like
// users who send one request after the other.
func pairs(ctx context.Context, b *bench) (err error) {
	for _, callers := range []int{1, 8, 64, 512, 4096} {
		if b.plan.quick && callers > 512 {
			continue
		}
		err = errors.Join(err, b.contest(ctx, callers, func(ctx context.Context, c contender) (r round, err error) {
			l, err := c.open(ctx, b.servers, callers)
			if err != nil {
				return r, err
			}
			defer func() { err = errors.Join(err, l.close()) }()
			return b.run(ctx, callers, func(ctx context.Context, caller int) error {
				release, err := l.acquire(ctx, "user-"+strconv.Itoa(caller))
				if err != nil {
					return err
				}
				return release(ctx)
			})
		}))
	}
	return err
}

var errAdmitted = errors.New("was admitted although another instance holds the lock")

// burst measures how fast callers are rejected whose lock another instance of
// the same contender holds, on connections of its own, as another process would.
func burst(ctx context.Context, b *bench) error {
	const callers, name = 64, "the one that all want"
	return b.contest(ctx, callers, func(ctx context.Context, c contender) (r round, err error) {
		there, err := c.open(ctx, b.servers, 1)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, there.close()) }()
		release, err := there.acquire(ctx, name)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, release(context.WithoutCancel(ctx))) }()
		here, err := c.open(ctx, b.servers, callers)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, here.close()) }()
		return b.run(ctx, callers, func(ctx context.Context, _ int) error {
			switch _, err := here.acquire(ctx, name); {
			case errors.Is(err, errBusy):
				return nil
			case err == nil:
				return errAdmitted
			default:
				return err
			}
		})
	})
}

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
				session, closeAll, err := openSession(ctx, b.servers, "pgx")
				if err != nil {
					return r, err
				}
				defer func() { err = errors.Join(err, closeAll()) }()
				user := ratelimit.OneAtATime(session, "user")
				tenant := ratelimit.AtMost(10, session, "tenant")
				total := ratelimit.AtMost(600, session, "total")
				for range half {
					n := len(callers)
					levels := []ratelimit.Level{{Limiter: user, ID: strconv.Itoa(n)}, {Limiter: tenant, ID: strconv.Itoa(n / users)}, {Limiter: total, ID: "all"}}
					callers = append(callers, levels[of.from:of.to])
				}
			}
			return b.run(ctx, len(callers), func(ctx context.Context, caller int) error {
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
			})
		}})
	}
	return b.interleave(ctx, all)
}
