package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Run works on jobs, up to workers at once, until ctx ends. Then it waits for
// those in progress. It goes on while the database is away, and so returns no
// error. To stop at once, end the process: nothing is lost.
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

// jittered returns d, shortened by up to a half at random, so that workers that
// began together do not stay together.
func jittered(d time.Duration) time.Duration {
	return d - rand.N(d/2+1) //nolint:gosec // no secret
}

// trouble logs when trouble begins and when it ends, not each error.
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

// A Way shares the jobs of a queue out: [AdvisoryLock] or [SkipLocked]. One Way
// serves one call of Run.
//
// A table is worked on in one way at a time. A job that AdvisoryLock has taken
// looks ready to SkipLocked, so work would run twice, though effects would not.
// Stop all workers before a change.
type Way interface {
	queue() *Queue

	// take returns a job that is due, the first by priority and time, for this
	// process alone. It returns nil if there is none.
	take(ctx context.Context) (*hold, error)

	// reap returns the jobs of dead workers until ctx ends.
	reap(ctx context.Context)

	// close ends the way, when no job is in progress any more.
	close()
}

// A hold is a job that this process works on.
//
// Invariant: while lock.Err() is nil no other worker has the job, and the
// attempt number of its row is job.Attempt. A worker that takes it over
// increments the number first.
type hold struct {
	job    Job
	status string        // what the row says meanwhile
	lock   *sqllock.Lock // the job's (AdvisoryLock), or the worker's (SkipLocked)
	single *sqllock.Lock // of a singleton's kind, where that is not lock; else nil
	fence  *sqllock.Lock // the one that the effect's transaction is fenced with; nil: none
	giveUp func(Outcome) // releases the job, after how its attempt ended
}

// timeout bounds each transaction of the queue's own.
const timeout = 5 * time.Second

// bounded returns a context for the queue's statements. The end of Run does not
// cancel it: the result of a claim or a commit should be known.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// ErrUnavailable reports that the database did not respond.
var ErrUnavailable = errors.New("queue: database is unavailable")

// safe returns err without the driver's text, which may name hosts and users.
func safe(err error) error {
	var server interface{ SQLState() string }
	switch {
	case err == nil, strings.HasPrefix(err.Error(), "sqllock: "), strings.HasPrefix(err.Error(), "queue: "):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no response in time", ErrUnavailable)
	case errors.Is(err, sql.ErrTxDone):
		return errors.New("queue: an Effect ended its transaction: leave Commit and Rollback to the queue")
	case !errors.As(err, &server) || away(server.SQLState()):
		return ErrUnavailable
	case server.SQLState() == "42P01":
		return errors.New("queue: a table is missing (42P01): run queue.Schema, or add its schema to the search_path")
	}
	return fmt.Errorf("queue: the database rejected a statement (SQLSTATE %s)", server.SQLState())
}

// away reports whether a server's error is about the server, not about a statement.
func away(state string) bool {
	return strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "53")
}

const maxErrorLen = 500

// shortened returns an error's text as the table accepts it. PostgreSQL rejects
// NUL and bytes that are not UTF-8. A job whose failure cannot be stored would
// never end.
func shortened(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) <= maxErrorLen {
		return text
	}
	cut := maxErrorLen
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
