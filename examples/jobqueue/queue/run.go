package queue

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Run works on jobs, up to workers at once, until ctx ends; then it waits for those in
// hand. It goes on while the database is away, and so has no error to return. To stop at
// once, end the process: nothing is lost by that.
//
// Each worker uses a connection of the Queue's database at times, never while Work
// runs. Run panics if workers is not positive.
func Run(ctx context.Context, w Way, workers int) {
	if workers <= 0 {
		panic("queue: Run needs a positive number of workers")
	}
	defer w.close()
	var running sync.WaitGroup
	defer running.Wait()
	var t trouble
	running.Go(func() { w.reap(ctx) })
	for range workers {
		running.Go(func() { work(ctx, w, &t) })
	}
}

func work(ctx context.Context, w Way, t *trouble) {
	q := w.queue()
	for ctx.Err() == nil {
		h, err := w.take(ctx)
		if ctx.Err() == nil {
			t.note(q, err)
		}
		if h == nil {
			wait(ctx, jittered(q.options.poll))
			continue
		}
		q.run(ctx, h)
	}
}

// jittered is d, shortened by up to a half, so that what began together does not go on
// so.
func jittered(d time.Duration) time.Duration {
	return d - rand.N(d/2+1) //nolint:gosec // no secret
}

// trouble reports the begin and the end of trouble, not each of its errors.
type trouble struct{ now atomic.Bool }

func (t *trouble) note(q *Queue, err error) {
	if t.now.Swap(err != nil) == (err != nil) {
		return
	}
	if err != nil {
		q.options.log.Warn("queue: jobs cannot be taken now", "error", err)
		return
	}
	q.options.log.Info("queue: jobs can be taken again")
}
