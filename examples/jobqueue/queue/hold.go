package queue

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Way shares the jobs of a queue out: [AdvisoryLock] or [SkipLocked]. One Way serves
// one call of Run.
//
// A table is worked on in one way at a time: what AdvisoryLock has in hand looks ready
// to SkipLocked. Stop all workers to change. (Mixed, work runs twice; effects still do not.)
type Way interface {
	queue() *Queue

	// take is a job that is due, the first by priority and time, for this process
	// alone; nil if there is none.
	take(ctx context.Context) (*hold, error)

	// reap returns the jobs of dead workers until ctx ends.
	reap(ctx context.Context)

	// close ends the way, when no job is in hand any more.
	close()
}

// A hold is a job in hand.
//
// Invariant: while lock.Err() is nil nobody else works on the job, and the attempt
// number of its row is job.Attempt. Who takes it over counts one up first.
type hold struct {
	job    Job
	status string        // what the row says meanwhile
	lock   *sqllock.Lock // the job's (AdvisoryLock), or the worker's (SkipLocked)
	single *sqllock.Lock // of a singleton's kind, where that is not lock; else nil
	fence  *sqllock.Lock // the one that the effect's transaction is fenced with; nil: none
	giveUp func(Outcome) // lets go of the job, after how its attempt ended
}

// patience bounds each transaction of the queue's own.
const patience = 5 * time.Second

// bounded is a context for the queue's statements, which the end of Run does not cancel:
// what became of a claim or a commit should be known.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}
