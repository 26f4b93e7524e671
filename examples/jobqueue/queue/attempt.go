package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/sqllock"
)

// errCutOff is the error of a job whose last allowed attempt neither succeeded nor
// failed. The job may be what kills its workers.
var errCutOff = errors.New("its worker ended in the middle of it, the last time that was allowed")

// run makes an attempt at a job.
func (q *Queue) run(ctx context.Context, h *hold) {
	var (
		effect  Effect
		err     error
		outcome = Abandoned
	)
	defer func() { h.giveUp(outcome) }()
	if h.job.Attempt > h.job.MaxAttempts {
		err = errCutOff
	} else {
		effect, err = q.work(ctx, h)
	}
	outcome = q.settle(ctx, h, effect, err)
	if q.options.ended != nil {
		q.options.ended(h.job, outcome)
	}
}

// work does the work. Its context ends when another worker may have the job. A
// panic is an error.
func (q *Queue) work(ctx context.Context, h *hold) (effect Effect, err error) {
	ctx, cancel := h.lock.Bind(context.WithoutCancel(ctx)) // Run lets it finish
	defer cancel()
	ctx, cancelSingle := h.single.Bind(ctx)
	defer cancelSingle()
	kind := q.kinds[h.job.Kind]
	if kind.Timeout > 0 {
		var cancelTimeout context.CancelFunc
		ctx, cancelTimeout = context.WithTimeout(ctx, kind.Timeout)
		defer cancelTimeout()
	}
	if h.lock.Err() != nil { // this worker was slow: the job may run elsewhere
		return nil, sqllock.ErrLost
	}
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return kind.Work(ctx, h.job)
}

func panicked(value any) error { return fmt.Errorf("panic: %v", value) }

var errSuperseded = errors.New("queue: another worker has the job")

// An effectError is the error of an Effect, not of the queue's own statements.
type effectError struct{ error }

func (e effectError) Unwrap() error { return e.error }

// mayFail is how often an attempt's transaction may fail for an unknown reason,
// while the database responds, before the job counts as failed.
const mayFail = 3

// settle stores how an attempt ended. It tries until that is known, the lock is
// gone, or Run is to end. So work that is done survives a short outage of the
// database.
func (q *Queue) settle(ctx context.Context, h *hold, effect Effect, workErr error) Outcome {
	failures := 0
	for pause := 10 * time.Millisecond; h.lock.Err() == nil; pause = min(2*pause, time.Second) {
		outcome, err := q.store(ctx, h, effect, workErr)
		if err == nil {
			return outcome
		}
		if errors.Is(err, errSuperseded) {
			return Superseded
		}
		if q.answers(ctx) {
			failures++
		}
		if workErr == nil && (failures >= mayFail || final(err)) {
			workErr = unwrapped(err)
			continue
		}
		if !wait(ctx, pause) {
			break
		}
	}
	return Abandoned
}

// final reports whether another try would fail again: for an effect's own error, or
// the loss of a singleton kind's lock.
func final(err error) bool {
	var effect effectError
	return errors.As(err, &effect) || errors.Is(err, sqllock.ErrLost) || errors.Is(err, sqllock.ErrFenced)
}

// unwrapped returns an effect's own error as it is, and any other error without the
// driver's text.
func unwrapped(err error) error {
	if effect, ok := errors.AsType[effectError](err); ok {
		return effect.error
	}
	return safe(err)
}

func (q *Queue) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return q.db.PingContext(ctx) == nil
}

// store is one try of settle.
func (q *Queue) store(ctx context.Context, h *hold, effect Effect, workErr error) (Outcome, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	ctx, cancelBound := h.lock.Bind(ctx)
	defer cancelBound()
	if workErr != nil {
		return Failed, q.fail(ctx, h, workErr)
	}
	return Done, q.complete(ctx, h, effect)
}

// complete marks the job done and runs the effect, both or neither. The fence
// rejects a worker that was frozen if another has had the lock since.
func (q *Queue) complete(ctx context.Context, h *hold, effect Effect) error {
	if effect == nil && h.fence == nil {
		return q.done(ctx, q.db, h)
	}
	tx, err := q.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if h.fence != nil {
		if err := sqllock.Fence(ctx, tx, h.fence); err != nil {
			return err
		}
	}
	if effect != nil {
		if err := tried(ctx, effect, tx); err != nil {
			return err
		}
	}
	if err := q.done(ctx, tx, h); err != nil { // after the effect: an error that it ignored shows here
		return err
	}
	return tx.Commit()
}

// done marks the job done, if the row still has this attempt's number: the
// number is a fence of the row's own.
func (q *Queue) done(ctx context.Context, db sqlx.ExtContext, h *hold) error {
	return one(ctx, db, `UPDATE jobs SET status = 'done', finished_at = now(), error = NULL
		WHERE id = $1 AND attempt = $2 AND status = $3`, h.job.ID, h.job.Attempt, h.status)
}

// fail makes the job due again, later each time, or marks it dead.
func (q *Queue) fail(ctx context.Context, h *hold, workErr error) error {
	return one(ctx, q.db, `UPDATE jobs SET worker = NULL, error = $4,
			status = CASE WHEN attempt < max_attempts THEN 'ready' ELSE 'dead' END,
			finished_at = CASE WHEN attempt < max_attempts THEN NULL ELSE now() END,
			run_at = now() + $5::float8 * interval '1 second'
		WHERE id = $1 AND attempt = $2 AND status = $3`,
		h.job.ID, h.job.Attempt, h.status, shortened(workErr.Error()), backoff(q.options.backoff, h.job.Attempt).Seconds())
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
			err = panicked(p)
		}
		if err != nil {
			err = effectError{err}
		}
	}()
	return effect(ctx, tx)
}

const maxBackoff = time.Hour

// backoff returns how long a job waits after its attempt number n: first, doubled
// n-1 times.
func backoff(first time.Duration, n int) time.Duration {
	return jittered(min(first<<min(n-1, 20), maxBackoff))
}
