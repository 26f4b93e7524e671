package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/report"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// countedName is what the server is told that a contender is called.
const countedName = "latchkey-bench-counted"

// connections counts on the server how many connections a contender has.
func connections(ctx context.Context, b *bench) error {
	callers := []int{1, 64, 4096}
	if b.plan.quick {
		callers = []int{64}
	}
	env, err := b.env.WithApplicationName(countedName)
	if err != nil {
		return err
	}
	var contestants []contestant
	for _, c := range locks.Named(locks.KitPgx, locks.PerConnectionPgx) {
		for _, n := range callers {
			contestants = append(contestants, contestant{
				name: c.Name, variant: report.NothingElseHeld, x: n,
				measure: func(ctx context.Context) (results.Round, error) { return b.countConnections(ctx, c, env, 0, n) },
			})
		}
	}
	for _, c := range locks.Named(locks.KitPgx) {
		// With the callers' own the Session comes to a thousand locks.
		contestants = append(contestants, contestant{
			name: c.Name, variant: report.ThousandHeld, x: heldCallers,
			measure: func(ctx context.Context) (results.Round, error) {
				return b.countConnections(ctx, c, env, 1000-heldCallers, heldCallers)
			},
		})
	}
	return b.interleave(ctx, "connections", contestants)
}

// countConnections counts from time to time while callers make pairs, and
// returns the most.
func (b *bench) countConnections(ctx context.Context, c locks.Contender, env locks.Env, holding, callers int) (measured results.Round, err error) {
	l, err := c.Open(ctx, env, callers)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := holdMany(ctx, l, holding); err != nil {
		return measured, err
	}
	counting, stop := context.WithCancel(ctx)
	most := make(chan int, 1)
	go func() { most <- b.mostConnections(counting) }()
	measured, err = b.measurePairs(ctx, l, callers)
	stop()
	n := <-most
	if n == 0 && err == nil {
		err = errors.New("no connection was counted: measure for longer")
	}
	measured.Extra = map[string]float64{"connections": float64(n)}
	return measured, err
}

// mostConnections counts until ctx ends. It leaves out the warm-up, in which a
// Session still has the second connection that it opened for its proof.
func (b *bench) mostConnections(ctx context.Context) (most int) {
	db, err := sql.Open(locks.Pgx, b.env.Postgres)
	if err != nil {
		return 0
	}
	defer db.Close()
	wait := b.plan.warmUp
	for {
		select {
		case <-ctx.Done():
			return most
		case <-time.After(wait):
		}
		wait = 50 * time.Millisecond
		var n int
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", countedName).Scan(&n)
		if err == nil {
			most = max(most, n)
		}
	}
}
