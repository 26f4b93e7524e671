package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
)

// quickContenders are those that the main ratios are about.
var quickContenders = []string{
	locks.KitPgx, locks.KitPQ, locks.PerConnectionPgx, locks.PerConnectionPQ, locks.AutoPipeline, locks.Rueidis, locks.RueidisTuned,
}

// contest makes contestants of contenders. Those of this kit are compared with a
// connection per lock on the same driver.
func contest(contenders []locks.Contender, callers int, measure func(context.Context, locks.Contender) (round, error)) (all []contestant) {
	for _, c := range contenders {
		one := contestant{name: c.Name, x: fmt.Sprintf("%d callers", callers), redis: c.Family == locks.Redis}
		if c.Family == locks.Kit {
			one.against = map[string]string{locks.Pgx: locks.PerConnectionPgx, locks.PQ: locks.PerConnectionPQ}[c.Driver]
		}
		one.measure = func(ctx context.Context) (round, error) { return measure(ctx, c) }
		all = append(all, one)
	}
	return all
}

// pairs measures acquire and release. No two callers want the same name.
func pairs(ctx context.Context, b *bench) (err error) {
	contenders, callers := locks.All(), []int{1, 8, 64, 512, 4096}
	if b.plan.quick {
		contenders, callers = locks.Named(quickContenders...), []int{1, 8, 64, 512}
	}
	for _, n := range callers {
		err = errors.Join(err, b.interleave(ctx, contest(contenders, n, func(ctx context.Context, c locks.Contender) (round, error) {
			return b.measureContender(ctx, c, n)
		})))
	}
	return err
}

// onOneProcessor leaves the other processors to the servers, as on machines of
// their own.
func onOneProcessor(ctx context.Context, b *bench) (err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, n := range []int{1, 8, 64, 512} {
		err = errors.Join(err, b.interleave(ctx, contest(locks.Named(quickContenders...), n, func(ctx context.Context, c locks.Contender) (round, error) {
			return b.measureContender(ctx, c, n)
		})))
	}
	return err
}

func (b *bench) measureContender(ctx context.Context, c locks.Contender, callers int) (r round, err error) {
	l, err := c.Open(ctx, b.env, callers)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return b.measurePairs(ctx, l, callers)
}

// measurePairs has so many callers take and give back locks, each that of a name of
// its own: users who send one request after the other.
func (b *bench) measurePairs(ctx context.Context, l locks.Locks, callers int) (round, error) {
	users := names(callers)
	// Of thousands of callers the slow contenders serve each once in half a second.
	turns := time.Duration(callers) * time.Second / 4096
	return b.run(ctx, load.Load{Callers: callers, WarmUp: turns / 2, Measure: turns, Op: func(ctx context.Context, caller int) error {
		held, err := l.Acquire(ctx, users[caller])
		if err != nil {
			return err
		}
		return held.Release(ctx)
	}})
}

// arrivals measures the acquire of callers who rest between their pairs.
func arrivals(ctx context.Context, b *bench) error {
	const callers, rest = 256, 20 * time.Millisecond
	users := names(callers)
	return b.interleave(ctx, contest(locks.Named(quickContenders...), callers, func(ctx context.Context, c locks.Contender) (r round, err error) {
		l, err := c.Open(ctx, b.env, callers)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		locked := make([]locks.Held, callers)
		return b.run(ctx, load.Load{
			Callers: callers,
			Op: func(ctx context.Context, caller int) (err error) {
				locked[caller], err = l.Acquire(ctx, users[caller])
				return err
			},
			After: func(ctx context.Context, caller int) error {
				err := locked[caller].Release(ctx)
				time.Sleep(rand.N(rest)) // until the next request
				return err
			},
		})
	}))
}

// held measures pairs on a Session that holds many other locks at the same
// time: each makes the statements of its connection dearer.
func held(ctx context.Context, b *bench) error {
	const callers = 64
	var all []contestant
	for _, n := range []int{100, 1000, 5000} {
		all = append(all, contestant{name: locks.KitPgx, x: fmt.Sprintf("%d locks", n), measure: func(ctx context.Context) (r round, err error) {
			kit, err := locks.OpenKit(ctx, b.env, locks.Pgx)
			if err != nil {
				return r, err
			}
			defer func() { err = errors.Join(err, kit.Close()) }()
			g, gctx := errgroup.WithContext(ctx)
			g.SetLimit(callers)
			for i := range n {
				g.Go(func() error {
					_, err := kit.Acquire(gctx, fmt.Sprintf("held-%d", i))
					return err
				})
			}
			if err := g.Wait(); err != nil {
				return r, err
			}
			return b.measurePairs(ctx, kit, callers)
		}})
	}
	return b.interleave(ctx, all)
}

var errAdmitted = errors.New("was admitted although another instance holds the lock")

// refusals measures how fast callers are refused whose lock another instance of
// the same contender holds, on connections of its own, as another process would.
func refusals(ctx context.Context, b *bench) error {
	const callers, name = 64, "the one that all want"
	contenders := locks.All()
	if b.plan.quick {
		contenders = locks.Named(quickContenders...)
	}
	return b.interleave(ctx, contest(contenders, callers, func(ctx context.Context, c locks.Contender) (r round, err error) {
		there, err := c.Open(ctx, b.env, 1)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, there.Close()) }()
		held, err := there.Acquire(ctx, name)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, held.Release(context.WithoutCancel(ctx))) }()
		here, err := c.Open(ctx, b.env, callers)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, here.Close()) }()
		return b.run(ctx, load.Load{Callers: callers, Op: func(ctx context.Context, _ int) error {
			switch _, err := here.Acquire(ctx, name); {
			case errors.Is(err, locks.ErrBusy):
				return nil
			case err == nil:
				return errAdmitted
			default:
				return err
			}
		}})
	}))
}
