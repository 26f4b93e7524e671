package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/sqllock"
)

var (
	// errCutOff is the error of a job whose last allowed attempt neither succeeded
	// nor failed. The job may be what kills its workers.
	errCutOff = errors.New("its worker ended in the middle of it, the last time that was allowed")

	errSuperseded = errors.New("queue: another worker has the job")
)

// run makes an attempt at a job, and releases it.
func (q *Queue) run(ctx context.Context, h *hold) {
	defer func() { _ = h.lock.Unlock() }() // if the database does not respond, the session's end frees it
	var effect Effect
	err := errCutOff
	if h.job.Attempt <= h.job.MaxAttempts {
		effect, err = q.work(ctx, h)
	}
	q.settle(ctx, h, effect, err)
}

// work does the work. Its context ends when another worker may have the job. A
// panic is an error.
func (q *Queue) work(ctx context.Context, h *hold) (effect Effect, err error) {
	ctx, cancel := h.lock.Bind(context.WithoutCancel(ctx)) // Run lets it finish
	defer cancel()
	kind := q.kinds[h.job.Kind]
	if kind.Timeout > 0 {
		var cancelTimeout context.CancelFunc
		ctx, cancelTimeout = context.WithTimeout(ctx, kind.Timeout)
		defer cancelTimeout()
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return kind.Work(ctx, h.job)
}

// An effectError is the error of an Effect, not of the queue's own statements.
type effectError struct{ error }

func (e effectError) Unwrap() error { return e.error }

// settle stores how an attempt ended. It tries until that is known, the lock is
// gone, or Run is to end. So work that is done survives a short outage of the
// database.
func (q *Queue) settle(ctx context.Context, h *hold, effect Effect, workErr error) {
	for pause := 10 * time.Millisecond; h.lock.Err() == nil; pause = min(2*pause, time.Second) {
		err := q.store(ctx, h, effect, workErr)
		if err == nil || errors.Is(err, errSuperseded) {
			return
		}
		var own effectError
		switch {
		case workErr != nil:
		case errors.As(err, &own): // another try would fail again, as it would below
			workErr = own.error
			continue
		case !errors.Is(safe(err), ErrUnavailable) && !errors.Is(err, sqllock.ErrUnavailable):
			workErr = safe(err)
			continue
		}
		if !wait(ctx, pause) {
			return // it will be tried again
		}
	}
}

// store is one try of settle.
func (q *Queue) store(ctx context.Context, h *hold, effect Effect, workErr error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ctx, cancelBound := h.lock.Bind(ctx)
	defer cancelBound()
	if workErr != nil {
		return q.fail(ctx, h, workErr)
	}
	return q.complete(ctx, h, effect)
}

// complete marks the job done and runs the effect, both or neither. The fence
// rejects a worker that was frozen if another has had the lock since. So does the
// attempt's number.
func (q *Queue) complete(ctx context.Context, h *hold, effect Effect) error {
	tx, err := q.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := sqllock.Fence(ctx, tx, h.lock); err != nil {
		return err
	}
	if err := tried(ctx, effect, tx); err != nil {
		return err
	}
	err = one(ctx, tx, `UPDATE jobs SET status = 'done', finished_at = now(), error = NULL
		WHERE id = $1 AND attempt = $2 AND status = 'ready'`, h.job.ID, h.job.Attempt)
	if err != nil { // after the effect: an error that it ignored shows here
		return err
	}
	return tx.Commit()
}

// fail makes the job due again, later each time, or marks it dead.
func (q *Queue) fail(ctx context.Context, h *hold, workErr error) error {
	return one(ctx, q.db, `UPDATE jobs SET error = $3,
			status = CASE WHEN attempt < max_attempts THEN 'ready' ELSE 'dead' END,
			finished_at = CASE WHEN attempt < max_attempts THEN NULL ELSE now() END,
			run_at = now() + $4::float8 * interval '1 second'
		WHERE id = $1 AND attempt = $2 AND status = 'ready'`,
		h.job.ID, h.job.Attempt, shortened(workErr.Error()), backoff(q.options.Backoff, h.job.Attempt).Seconds())
}

// one runs a statement that changes one row. It returns errSuperseded if there
// is no such row.
func one(ctx context.Context, db sqlx.ExtContext, query string, args ...any) error {
	result, err := db.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errSuperseded
}

// tried returns the error or the panic of effect as an effectError.
func tried(ctx context.Context, effect Effect, tx *sqlx.Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			err = effectError{err}
		}
	}()
	if effect == nil {
		return nil
	}
	return effect(ctx, tx)
}

const maxBackoff = time.Hour

// backoff returns how long a job waits after its attempt number n: first, doubled
// n-1 times.
func backoff(first time.Duration, n int) time.Duration {
	return jittered(min(min(first, maxBackoff)<<min(n-1, 20), maxBackoff))
}
