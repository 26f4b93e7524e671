package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A hold is a job that this process works on.
//
// Invariant: while lock.Err() is nil no other worker has the job, and the attempt
// number of its row is job.Attempt. A worker that takes it over increments the
// number first.
type hold struct {
	job  Job
	lock *sqllock.Lock
}

// page is how many candidates are read at once. Their locks cost one round trip
// together, so it may be larger than the number of workers.
const page = 64

// take returns a job that is due, the first by priority and time, for this process
// alone. It returns nil if there is none. It reads candidates, acquires the first of
// their locks that is free, and looks at the job again under its lock.
func (q *Queue) take(ctx context.Context) (*hold, error) {
	for offset := 0; ; {
		jobs, err := q.candidates(ctx, offset)
		if err != nil || len(jobs) == 0 {
			return nil, safe(err)
		}
		h, err := q.first(ctx, jobs)
		switch {
		case errors.Is(err, sqllock.ErrHeld): // other workers have all of them: read on
			offset += page
		case errors.Is(err, sql.ErrNoRows): // the list is out of date
		default:
			return h, safe(err)
		}
	}
}

const candidates = `SELECT id, priority FROM jobs
	WHERE status = 'ready' AND run_at <= now() AND kind = ANY($1::text[])
	ORDER BY priority DESC, run_at, id LIMIT $2 OFFSET $3`

// candidates returns jobs that look due, the highest priority first. Jobs of one
// priority are shuffled: otherwise all workers would try the same ones.
func (q *Queue) candidates(ctx context.Context, offset int) (jobs []Job, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := q.db.SelectContext(ctx, &jobs, candidates, q.names, page, offset); err != nil {
		return nil, err
	}
	rand.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(b.Priority, a.Priority) })
	return jobs, nil
}

// first takes the first of jobs that is free. It returns ErrHeld if none is free,
// and sql.ErrNoRows if the job is not due any more.
func (q *Queue) first(ctx context.Context, jobs []Job) (*hold, error) {
	keys := make([]sqllock.Key, len(jobs))
	ids := make(map[sqllock.Key]int64, len(jobs))
	for i, job := range jobs {
		keys[i] = q.key(job)
		ids[keys[i]] = job.ID
	}
	lock, err := q.locks.TryAny(ctx, keys...)
	if err != nil {
		return nil, err
	}
	job, err := q.begin(ctx, ids[lock.Key()])
	if err != nil {
		_ = lock.Unlock() // if the database does not respond, the session's end frees it
		return nil, err
	}
	return &hold{job, lock}, nil
}

// begin is the second look, under the lock. It counts the attempt. Another
// worker may have finished the job between the first look and the lock: a free
// lock says only that no worker has the job now. Then begin returns
// sql.ErrNoRows.
const begin = `UPDATE jobs SET attempt = attempt + 1
	WHERE id = $1 AND status = 'ready' AND run_at <= now() RETURNING ` + columns

func (q *Queue) begin(ctx context.Context, id int64) (job Job, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = q.db.GetContext(ctx, &job, begin, id)
	return job, err
}
