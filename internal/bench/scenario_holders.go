package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/report"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

const (
	holderCount = 500
	workPool    = 10 // connections for the holders' work

	// holdersLimit is when the run is called off: with a connection per lock of
	// the same pool it would never end.
	holdersLimit = 2 * time.Second
)

// The work of a holder: a query of some tenths of a millisecond.
const work = "SELECT count(*) FROM generate_series(1, 1000)"

// holders has many goroutines each take a lock and, while they hold it, do work
// in the database, on a pool that is smaller than they are many.
func holders(ctx context.Context, b *bench) error {
	return b.interleave(ctx, "holders", []contestant{
		{name: locks.KitPgx, variant: report.HoldersApart, x: holderCount, measure: b.holdersOfKit},
		{name: locks.PerConnectionPgx, variant: "on the pool of the work", x: holderCount, measure: b.holdersOfPool},
		{name: locks.PerConnectionPgx, variant: "on a pool of 90 of its own", x: holderCount, measure: b.holdersOfPools},
	})
}

func (b *bench) holdersOfKit(ctx context.Context) (measured results.Round, err error) {
	kit, err := locks.OpenKit(ctx, b.env, locks.Pgx)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, kit.Close()) }()
	db, err := b.openWorkPool(ctx)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return runHolders(ctx, kit, db), nil
}

func (b *bench) holdersOfPool(ctx context.Context) (measured results.Round, err error) {
	db, err := b.openWorkPool(ctx)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return runHolders(ctx, locks.OnPool(db), db), nil
}

// holdersOfPools has a pool for the locks and another for the work.
func (b *bench) holdersOfPools(ctx context.Context) (measured results.Round, err error) {
	l, err := locks.Named(locks.PerConnectionPgx)[0].Open(ctx, b.env, holderCount)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	db, err := b.openWorkPool(ctx)
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return runHolders(ctx, l, db), nil
}

// openWorkPool has all its connections open already.
func (b *bench) openWorkPool(ctx context.Context) (*sql.DB, error) {
	db, err := sql.Open(locks.Pgx, b.env.Postgres)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(workPool)
	db.SetMaxIdleConns(workPool)
	var wg sync.WaitGroup
	errs := make([]error, workPool)
	for i := range workPool {
		wg.Go(func() { _, errs[i] = db.ExecContext(ctx, "SELECT pg_sleep(0.02)") })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// runHolders counts how many finish, and how long those who got their lock had
// to wait for it.
func runHolders(ctx context.Context, l locks.Locks, db *sql.DB) results.Round {
	ctx, cancel := context.WithTimeout(ctx, holdersLimit)
	defer cancel()
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex // protects finished and acquire
		finished int
		acquire  = load.NewHistogram()
		start    = time.Now()
	)
	for i := range holderCount {
		wg.Go(func() {
			took, err := holdAndWork(ctx, l, db, fmt.Sprintf("holder-%d", i))
			mu.Lock()
			defer mu.Unlock()
			if took > 0 {
				_ = acquire.RecordValue(took.Nanoseconds())
			}
			if err == nil {
				finished++
			}
		})
	}
	wg.Wait()
	return results.Round{
		Rate:   float64(finished) / time.Since(start).Seconds(),
		P50:    time.Duration(acquire.ValueAtQuantile(50)),
		P99:    time.Duration(acquire.ValueAtQuantile(99)),
		Errors: int64(holderCount - finished),
		Extra:  map[string]float64{"finished": float64(finished), "acquired": float64(acquire.TotalCount())},
	}
}

// holdAndWork returns how long it took to get the lock, 0 if it did not.
func holdAndWork(ctx context.Context, l locks.Locks, db *sql.DB, name string) (took time.Duration, err error) {
	start := time.Now()
	held, err := l.Acquire(ctx, name)
	if err != nil {
		return 0, err
	}
	took = time.Since(start)
	var n int
	err = db.QueryRowContext(ctx, work).Scan(&n)
	return took, errors.Join(err, held.Release(context.WithoutCancel(ctx)))
}
