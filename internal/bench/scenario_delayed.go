package main

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/delay"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

const (
	oneWay         = 500 * time.Microsecond
	delayedCallers = 512

	// settling is how long pools may take to open hundreds of connections, each of
	// which takes several round trips.
	settling = 600 * time.Millisecond
)

// delayed is pairs with a network's delay between client and servers.
func delayed(ctx context.Context, b *bench) (err error) {
	if err := b.measureDelay(ctx); err != nil {
		return err
	}
	u, err := url.Parse(b.env.Postgres)
	if err != nil {
		return err
	}
	postgres, err := delay.Start(u.Host, oneWay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	redis, err := delay.Start(b.env.Redis, oneWay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Close()) }()
	env, err := b.env.Through(postgres.Addr, redis.Addr)
	if err != nil {
		return err
	}
	patient := *b
	if !b.plan.quick {
		patient.plan.warmUp, patient.plan.measure = max(b.plan.warmUp, settling), max(b.plan.measure, settling)
	}
	return patient.interleave(ctx, "delayed", patient.pairContestants(b.delayedContenders(), env, delayedCallers))
}

// measureDelay notes what a round trip through a proxy really takes.
func (b *bench) measureDelay(ctx context.Context) error {
	return b.interleave(ctx, "delay", []contestant{{
		name: "one byte there and back", x: delayedCallers,
		measure: func(context.Context) (results.Round, error) {
			took, err := delay.Measure(oneWay)
			return results.Round{Rate: float64(time.Second) / float64(took), P50: took}, err
		},
	}})
}

func (b *bench) delayedContenders() []locks.Contender {
	if b.plan.quick {
		return locks.Named(locks.KitPgx, locks.PerConnectionPgx, "go-redis AutoPipeline",
			"go-redis AutoPipeline, full duplex", "rueidis", locks.RueidisTuned)
	}
	return slices.DeleteFunc(locks.All(), func(c locks.Contender) bool {
		return c.Family == locks.Floor || c.Family == locks.Transaction || c.Family == locks.LeaseRow
	})
}
