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
)

// Run works on jobs, up to workers at once, until ctx ends. Then it waits for
// those in progress. It goes on while the database is away, and so returns no
// error. To stop at once, end the process: nothing is lost.
//
// Each worker uses a connection of the Queue's database at times, never while Work
// runs. Run panics if workers is not positive.
func (q *Queue) Run(ctx context.Context, workers int) {
	if workers <= 0 {
		panic("queue: Run needs a positive number of workers")
	}
	var running sync.WaitGroup
	var away atomic.Bool // the last look for a job has failed
	for range workers {
		running.Go(func() {
			for ctx.Err() == nil {
				h, err := q.take(ctx)
				if ctx.Err() == nil {
					q.note(&away, err)
				}
				if h == nil {
					wait(ctx, jittered(q.options.Poll))
					continue
				}
				q.run(ctx, h)
			}
		})
	}
	running.Wait()
}

// note logs when trouble begins and when it ends, not each error.
func (q *Queue) note(away *atomic.Bool, err error) {
	switch was := away.Swap(err != nil); {
	case err != nil && !was:
		q.options.Log.Warn("queue: jobs cannot be taken now", "error", err)
	case err == nil && was:
		q.options.Log.Info("queue: jobs can be taken again")
	}
}

// wait waits for d. It returns false, at once, if ctx ends.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// jittered returns d, shortened by up to a half at random, so that workers that
// began together do not stay together.
func jittered(d time.Duration) time.Duration {
	return d - rand.N(d/2+1) //nolint:gosec // no secret
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
		return errNoTable
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
