package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/report"
	"github.com/latchkey-go/latchkey/internal/bench/results"
	"github.com/latchkey-go/latchkey/sqllock"
)

const heldCallers = 64

const heldByOne = "one connection"

// held measures pairs on a Session that holds many other locks at the same
// time: each makes the statements of its connection dearer.
func held(ctx context.Context, b *bench) error {
	counts := []int{100, 1000, 2000, 5000}
	if b.plan.quick {
		counts = []int{100, 5000}
	}
	var contestants []contestant
	for _, variant := range []string{report.HeldByDefault, heldByOne} {
		var opts []sqllock.Option
		if variant == heldByOne {
			opts = append(opts, sqllock.WithMaxConns(1))
		}
		for _, n := range counts {
			contestants = append(contestants, contestant{
				name: locks.KitPgx, variant: variant, x: n,
				measure: func(ctx context.Context) (measured results.Round, err error) {
					kit, err := locks.OpenKit(ctx, b.env, locks.Pgx, opts...)
					if err != nil {
						return measured, err
					}
					defer func() { err = errors.Join(err, kit.Close()) }()
					if err := holdMany(ctx, kit, n); err != nil {
						return measured, err
					}
					measured, err = b.measurePairs(ctx, kit, heldCallers)
					measured.Extra = map[string]float64{"connections": float64(kit.Session.Stats().Connections)}
					return measured, err
				},
			})
		}
	}
	return b.interleave(ctx, "held", contestants)
}

// holdMany takes so many locks, which go with the Session.
func holdMany(ctx context.Context, l locks.Locks, count int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(heldCallers)
	for i := range count {
		g.Go(func() error {
			_, err := l.Acquire(ctx, fmt.Sprintf("held-%d", i))
			return err
		})
	}
	return g.Wait()
}
