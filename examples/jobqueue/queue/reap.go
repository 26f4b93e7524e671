package queue

import (
	"context"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

func (w *skipLocked) reap(ctx context.Context) {
	var t trouble
	for wait(ctx, w.q.options.floor) {
		n, err := w.reapOnce(ctx)
		t.note(w.q, err)
		if n > 0 {
			w.q.options.log.Info("queue: returned jobs of workers that are gone", "jobs", n)
		}
	}
}

// reapOnce returns the jobs of workers whose lock is free: who could take it knows that
// the worker is dead, or believed so by the server, which is as good: its completion is
// refused, since the next attempt has another number. A worker's age says nothing.
func (w *skipLocked) reapOnce(ctx context.Context) (returned int64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var workers []int64
	err = w.q.db.SelectContext(ctx, &workers, `SELECT DISTINCT worker FROM jobs WHERE status = 'running'
		AND claimed_at <= now() - $1::float8 * interval '1 second' AND worker IS NOT NULL`, w.q.options.floor.Seconds())
	if err != nil {
		return 0, safe(err)
	}
	for _, worker := range workers {
		n, err := w.returnJobs(ctx, worker)
		returned += n
		if err != nil && !errors.Is(err, sqllock.ErrHeld) {
			return returned, safe(err)
		}
	}
	return returned, nil
}

// returnJobs returns all jobs of a worker, or fails with ErrHeld if it lives.
func (w *skipLocked) returnJobs(ctx context.Context, worker int64) (n int64, err error) {
	err = sqllock.Do(ctx, w.locks, w.q.workerKey(worker), func(ctx context.Context) error {
		result, err := w.q.db.ExecContext(ctx, `UPDATE jobs SET status = 'ready', worker = NULL
			WHERE status = 'running' AND worker = $1`, worker)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, err
}

// wait waits for d, or less if ctx ends, which it reports by false.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
