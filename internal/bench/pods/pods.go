// Package pods is a fleet in one process. Each pod has a pool of its own on one
// PostgreSQL. It locks through a Session, or with a pooled connection for each
// lock.
package pods

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Fleet is pods that are open.
type Fleet struct {
	Pods []locks.Locks

	exchanges func() uint64
}

// Sessions opens a fleet of n pods with a Session each.
func Sessions(ctx context.Context, dsn string, n int) (*Fleet, error) {
	sessions := make([]*sessionPod, n)
	pods, err := openAll(n, func(i int) (locks.Locks, error) {
		pod, err := openSession(ctx, dsn)
		sessions[i] = pod
		return pod, err
	})
	if err != nil {
		return nil, err
	}
	return &Fleet{Pods: pods, exchanges: func() (sum uint64) {
		for _, pod := range sessions {
			sum += pod.session.Stats().Exchanges
		}
		return sum
	}}, nil
}

// Pooled opens a fleet of n pods, each with a pool of the given size, whose
// connections are kept. They are opened at once if warm, else as needed.
func Pooled(ctx context.Context, dsn string, n, connections int, warm bool) (*Fleet, error) {
	pods, err := openAll(n, func(int) (locks.Locks, error) { return openPool(ctx, dsn, connections, warm) })
	if err != nil {
		return nil, err
	}
	return &Fleet{Pods: pods}, nil
}

// Exchanges is how many statements the fleet's Sessions have had answered; 0
// for a fleet without.
func (f *Fleet) Exchanges() uint64 {
	if f.exchanges == nil {
		return 0
	}
	return f.exchanges()
}

// Close closes all pods, and returns when the server has let go of them.
func (f *Fleet) Close() error {
	_, err := each(len(f.Pods), func(i int) (struct{}, error) { return struct{}{}, f.Pods[i].Close() })
	return err
}

// IsTooManyConnections reports whether the server has refused a connection
// because it has as many as max_connections allows.
func IsTooManyConnections(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "53300"
}

// openAll opens n pods, or none.
func openAll(n int, open func(i int) (locks.Locks, error)) ([]locks.Locks, error) {
	pods, err := each(n, open)
	if err == nil {
		return pods, nil
	}
	for _, pod := range pods {
		if pod != nil {
			err = errors.Join(err, pod.Close())
		}
	}
	return nil, err
}

// atOnce bounds how many pods open or close together. A Session takes a second
// connection for a moment when it opens, and there is no room for two per pod.
const atOnce = 8

// each calls do for every pod. The result of a pod that failed is the zero value.
func each[T any](n int, do func(i int) (T, error)) ([]T, error) {
	var wg sync.WaitGroup
	done, errs, places := make([]T, n), make([]error, n), make(chan struct{}, atOnce)
	for i := range n {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			result, err := do(i)
			if err != nil {
				errs[i] = err
				return
			}
			done[i] = result
		})
	}
	wg.Wait()
	return done, errors.Join(errs...)
}

const namespace = sqllock.Namespace("bench")
