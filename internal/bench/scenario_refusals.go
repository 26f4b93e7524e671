package main

import (
	"context"
	"errors"
	"slices"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

const refusedCallers = 64

// refusals measures how fast callers are refused whose lock another instance
// of the same contender holds, on connections of its own, as another process
// would. The floors need no other instance to be refused, and are left out.
func refusals(ctx context.Context, b *bench) error {
	contenders := slices.DeleteFunc(locks.All(), func(c locks.Contender) bool { return c.Family == locks.Floor })
	if b.plan.quick {
		contenders = locks.Named(locks.KitPgx, locks.PerConnectionPgx, "go-redis AutoPipeline")
	}
	var contestants []contestant
	for _, c := range contenders {
		contestants = append(contestants, contestant{
			name: c.Name, x: refusedCallers,
			measure: func(ctx context.Context) (results.Round, error) { return b.measureRefusals(ctx, c) },
		})
	}
	return b.interleave(ctx, "refusals", contestants)
}

var errAdmitted = errors.New("was admitted although another instance holds the lock")

func (b *bench) measureRefusals(ctx context.Context, c locks.Contender) (measured results.Round, err error) {
	const name = "the one that all want"
	there, err := c.Open(ctx, b.env, 1)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, there.Close()) }()
	held, err := there.Acquire(ctx, name)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, held.Release(context.WithoutCancel(ctx))) }()
	here, err := c.Open(ctx, b.env, refusedCallers)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, here.Close()) }()
	m := load.Run(ctx, load.Load{
		Callers: refusedCallers, WarmUp: b.plan.warmUp, Measure: b.plan.measure, Usage: b.usage,
		Op: func(ctx context.Context, _, _ int) error {
			_, err := here.Acquire(ctx, name)
			switch {
			case errors.Is(err, locks.ErrBusy):
				return nil
			case err == nil:
				return errAdmitted
			}
			return err
		},
	})
	if m.Ops == 0 || errors.Is(m.FirstErr, errAdmitted) {
		return measured, m.FirstErr
	}
	return round(m), nil
}
