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

// AdvisoryLock shares the jobs out by a lock on each: candidates, the first free one of
// their locks, a second look at the job under its lock. A job in hand stays "ready" in
// the table, so that there is nothing to clean up after a dead worker: the server frees
// its locks, and with them its jobs, milliseconds after a kill, and after
// the lease if it froze.
//
// It panics if q or locks is nil.
func AdvisoryLock(q *Queue, locks Locks) Way {
	if q == nil || locks == nil {
		panic("queue: AdvisoryLock needs a Queue and locks")
	}
	return &advisoryLock{q: q, locks: locks}
}

type advisoryLock struct {
	q     *Queue
	locks Locks
}

func (w *advisoryLock) queue() *Queue            { return w.q }
func (w *advisoryLock) reap(ctx context.Context) {} // the server has done it
func (w *advisoryLock) close()                   {}

// page is how many candidates are asked for at once. Their locks cost one round trip
// together, so it may well be larger than the number of workers.
const page = 64

func (w *advisoryLock) take(ctx context.Context) (*hold, error) {
	var busy []string // singleton kinds in somebody's hands
	for offset := 0; ; {
		jobs, err := w.candidates(ctx, busy, offset)
		if err != nil || len(jobs) == 0 {
			return nil, safe(err)
		}
		h, err := w.first(ctx, jobs)
		switch {
		case errors.Is(err, sqllock.ErrHeld): // all are in somebody's hands: further down
			if singles := w.singles(jobs); len(singles) > 0 {
				busy, offset = append(busy, singles...), 0
			} else {
				offset += page
			}
		case errors.Is(err, sql.ErrNoRows): // the list is out of date
		default:
			return h, safe(err)
		}
	}
}

const candidates = `SELECT id, kind, priority FROM jobs
	WHERE status = 'ready' AND run_at <= now() AND kind = ANY($1::text[]) AND kind <> ALL($2::text[])
	ORDER BY priority DESC, run_at, id LIMIT $3 OFFSET $4`

// candidates are jobs that look due, the highest priority first. Those of one priority
// are shuffled, for else all workers of the fleet would try the same ones.
func (w *advisoryLock) candidates(ctx context.Context, busy []string, offset int) (jobs []Job, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := w.q.db.SelectContext(ctx, &jobs, candidates, w.q.names, literal(busy), page, offset); err != nil {
		return nil, err
	}
	rand.Shuffle(len(jobs), func(i, j int) { jobs[i], jobs[j] = jobs[j], jobs[i] })
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(b.Priority, a.Priority) })
	return jobs, nil
}

// first is the first of jobs that is free. It fails with ErrHeld if none is, and with
// sql.ErrNoRows if that one was not due any more.
func (w *advisoryLock) first(ctx context.Context, jobs []Job) (*hold, error) {
	keys := make([]sqllock.Key, 0, len(jobs))
	ids := make(map[sqllock.Key]int64, len(jobs))
	for _, job := range jobs {
		key := w.lockKey(job)
		if _, twice := ids[key]; !twice { // jobs of a singleton kind share one
			keys, ids[key] = append(keys, key), job.ID
		}
	}
	lock, err := w.locks.TryAny(ctx, keys...)
	if err != nil {
		return nil, err
	}
	job, err := w.begin(ctx, ids[lock.Key()])
	if err != nil {
		_ = lock.Unlock() // if the database does not answer, the session's end frees it
		return nil, err
	}
	return &hold{job: job, status: "ready", lock: lock, fence: lock, giveUp: func(Outcome) { _ = lock.Unlock() }}, nil
}

// singles is the singleton kinds among jobs: without them, what waits for its turn would
// fill page after page.
func (w *advisoryLock) singles(jobs []Job) (kinds []string) {
	for _, job := range jobs {
		if w.q.kinds[job.Kind].Singleton && !slices.Contains(kinds, job.Kind) {
			kinds = append(kinds, job.Kind)
		}
	}
	return kinds
}

// lockKey is the key that a job runs under: its own, or its kind's, if that is to run
// one at a time.
func (w *advisoryLock) lockKey(job Job) sqllock.Key {
	if w.q.kinds[job.Kind].Singleton {
		return w.q.kindKey(job.Kind)
	}
	return w.q.key(job.ID)
}

// begin is the second look, under the lock, and counts the attempt. Between the first
// look and the lock somebody else may have had the job and finished it: a lock that is
// free says only that nobody works on it now. sql.ErrNoRows: so it was.
const begin = `UPDATE jobs SET attempt = attempt + 1, claimed_at = now()
	WHERE id = $1 AND status = 'ready' AND run_at <= now() RETURNING ` + columns

func (w *advisoryLock) begin(ctx context.Context, id int64) (job Job, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = w.q.db.GetContext(ctx, &job, begin, id)
	return job, err
}
