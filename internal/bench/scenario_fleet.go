package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/pods"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

const (
	podCallers = 64 // of each pod
	podPool    = 90 // connections that each pod may have, whatever the number of pods
	hotNames   = 16 // for the whole fleet

	// spareConns are left to others of the server's connections: those that
	// it reserves, and who else uses it.
	spareConns = 10

	// comeBack is after how long, on average, a caller tries again that was
	// refused or had an error, as a client would.
	comeBack = 10 * time.Millisecond
)

// fleet measures a fleet of pods on one server, by their number. Rates and
// latencies are of pairs; an Extra has what was refused, per second.
//
//	refused      busy names, per second; not errors
//	no room      connections refused by the server (53300), per second
//	connections  that each pod may have
//	batch        locks taken and given back per statement, of Sessions: beyond
//	             the number of callers, they went from hand to hand in a pod
//	switches     of contexts on the whole machine, per pair
func fleet(ctx context.Context, b *bench) error {
	room, err := maxConnections(ctx, b.env.Postgres)
	if err != nil {
		return err
	}
	sizes := []int{1, 5, 10, 25, 50}
	if b.plan.quick {
		sizes = []int{1, 10, 50}
	}
	var contestants []contestant
	for _, n := range sizes {
		fitting := min(podPool, (room-spareConns)/n)
		for _, names := range []podNames{ownNames, hotNamesOnly} {
			contestants = append(contestants,
				b.podContestant(names, n, "latchkey, one Session per pod", 1, func(ctx context.Context) (*pods.Fleet, error) {
					return pods.Sessions(ctx, b.env.Postgres, n)
				}),
				b.podContestant(names, n, "connection per lock, pools that fit", fitting, func(ctx context.Context) (*pods.Fleet, error) {
					return pods.Pooled(ctx, b.env.Postgres, n, fitting, true)
				}))
		}
		contestants = append(contestants,
			b.podContestant(ownNames, n, fmt.Sprintf("connection per lock, pools of %d", podPool), podPool, func(ctx context.Context) (*pods.Fleet, error) {
				return pods.Pooled(ctx, b.env.Postgres, n, podPool, false)
			}))
	}
	return b.interleave(ctx, "fleet", contestants)
}

// podNames is who locks what.
type podNames struct {
	variant string
	name    func(pod, caller int) string
}

var (
	ownNames = podNames{"own names", func(pod, caller int) string { return fmt.Sprintf("pod-%d-caller-%d", pod, caller) }}

	hotNamesOnly = podNames{
		fmt.Sprintf("%d names for all", hotNames),
		func(pod, caller int) string { return fmt.Sprintf("hot-%d", (pod+caller)%hotNames) },
	}
)

func (b *bench) podContestant(names podNames, n int, name string, connections int, open func(context.Context) (*pods.Fleet, error)) contestant {
	return contestant{name: name, variant: names.variant, x: n, measure: func(ctx context.Context) (measured results.Round, err error) {
		f, err := open(ctx)
		if err != nil {
			return measured, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		measured = b.measureFleet(ctx, f, names)
		measured.Extra["connections"] = float64(connections)
		return measured, nil
	}}
}

func (b *bench) measureFleet(ctx context.Context, f *pods.Fleet, names podNames) results.Round {
	callers := len(f.Pods) * podCallers
	all := make([]string, callers)
	for i := range all {
		all[i] = names.name(i/podCallers, i%podCallers)
	}
	var refused, noRoom, otherErrors, answered, switches meter
	meters := []*meter{&refused, &noRoom, &otherErrors, &answered, &switches}
	m := load.Run(ctx, load.Load{
		Callers: callers, WarmUp: b.plan.warmUp, Measure: b.plan.measure,
		Usage: func() load.Usage { // called when measuring begins and when it ends
			answered.set(f.Exchanges())
			switches.set(contextSwitches())
			for _, m := range meters {
				m.mark()
			}
			if b.usage == nil {
				return load.Usage{}
			}
			return b.usage()
		},
		Op: func(ctx context.Context, caller, _ int) error {
			err := podPair(ctx, f.Pods[caller/podCallers], all[caller])
			switch {
			case err == nil:
				return nil
			case errors.Is(err, locks.ErrBusy):
				refused.add(1)
			case pods.IsTooManyConnections(err):
				noRoom.add(1)
			default:
				otherErrors.add(1)
			}
			time.Sleep(comeBack/2 + rand.N(comeBack)) // as a client that was refused does
			return err
		},
	})
	r := round(m)
	r.Errors = int64(noRoom.between() + otherErrors.between())
	seconds := m.Elapsed.Seconds()
	r.Extra = map[string]float64{
		"refused": refused.between() / seconds,
		"no room": noRoom.between() / seconds,
	}
	if n := answered.between(); n > 0 {
		r.Extra["batch"] = 2 * float64(m.Ops) / n
	}
	if n := switches.between(); n > 0 && m.Ops > 0 {
		r.Extra["switches"] = n / float64(m.Ops)
	}
	return r
}

func podPair(ctx context.Context, l locks.Locks, name string) error {
	held, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return held.Release(ctx)
}

// A meter counts, and tells what came between its two marks.
type meter struct {
	n     atomic.Uint64
	marks []uint64 // written by one goroutine
}

func (m *meter) add(n uint64) { m.n.Add(n) }
func (m *meter) set(n uint64) { m.n.Store(n) }
func (m *meter) mark()        { m.marks = append(m.marks, m.n.Load()) }

func (m *meter) between() float64 {
	if len(m.marks) != 2 {
		return 0
	}
	return float64(m.marks[1] - m.marks[0])
}

// maxConnections is how many connections the server allows.
func maxConnections(ctx context.Context, dsn string) (n int, err error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT current_setting('max_connections')::int").Scan(&n)
	return n, err
}
