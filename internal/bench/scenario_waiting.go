package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/results"
	"github.com/latchkey-go/latchkey/internal/bench/waiters"
)

const (
	waitingProcesses = 4
	waitingCallers   = 64 // of each process
	waitingKeys      = 16 // for all

	// A Session keeps a key in its process for up to a second: a shorter
	// measurement would see shares that even out later.
	waitingMeasure      = 8 * time.Second
	waitingMeasureQuick = 3 * time.Second
)

// waiting measures callers in several processes that wait for few keys: the rate
// is of grants, the latencies are of the wait. An Extra has how grants were
// shared out.
//
//	least share, most share  of the processes with the fewest and most grants; 1/4 each is even
//	longest wait             in seconds
//	connections              of each process
func waiting(ctx context.Context, b *bench) error {
	room, err := maxConnections(ctx, b.env.Postgres)
	if err != nil {
		return err
	}
	connections := min(waitingCallers, (room-spareConns)/waitingProcesses)
	measure := waitingMeasure
	if b.plan.quick {
		measure = waitingMeasureQuick
	}
	var contestants []contestant
	for _, hold := range []time.Duration{0, time.Millisecond} {
		orders := waiters.Config{
			Postgres: b.env.Postgres, Callers: waitingCallers, Keys: waitingKeys,
			Hold: hold, WarmUp: b.plan.warmUp, Measure: measure,
		}
		session, advisory := orders, orders
		session.How, session.Connections = waiters.Session, 1
		advisory.How, advisory.Connections = waiters.AdvisoryLock, connections
		contestants = append(contestants,
			b.waitingContestant("latchkey, Session.Lock", session),
			b.waitingContestant("pg_advisory_lock, a connection each", advisory))
	}
	return b.interleave(ctx, "waiting", contestants)
}

func (b *bench) waitingContestant(name string, orders waiters.Config) contestant {
	return contestant{
		name: name, variant: fmt.Sprintf("held for %v", orders.Hold), x: waitingProcesses * waitingCallers,
		measure: func(ctx context.Context) (results.Round, error) { return b.measureWaiting(ctx, orders) },
	}
}

func (b *bench) measureWaiting(ctx context.Context, orders waiters.Config) (results.Round, error) {
	var server time.Duration
	o, err := waiters.Run(ctx, orders, waitingProcesses, func() { server = b.serverTime(orders.WarmUp, orders.Measure) })
	if err != nil {
		return results.Round{}, err
	}
	total := o.Total()
	if total == 0 {
		return results.Round{}, errors.New("no lock was granted: " + o.First)
	}
	least, most := o.Shares()
	return results.Round{
		Rate:      float64(total) / o.Elapsed.Seconds(),
		P50:       time.Duration(o.Waits.ValueAtQuantile(50)),
		P99:       time.Duration(o.Waits.ValueAtQuantile(99)),
		ClientCPU: o.CPU / time.Duration(total),
		ServerCPU: server / time.Duration(total),
		Errors:    o.Errors,
		Extra: map[string]float64{
			"least share":  least,
			"most share":   most,
			"longest wait": time.Duration(o.Waits.Max()).Seconds(),
			"connections":  float64(orders.Connections),
		},
	}, nil
}

// serverTime is the processor time of the servers while other processes measure.
func (b *bench) serverTime(warmUp, measure time.Duration) time.Duration {
	if b.usage == nil {
		return 0
	}
	time.Sleep(warmUp)
	before := b.usage()
	time.Sleep(measure)
	return b.usage().Server - before.Server
}
