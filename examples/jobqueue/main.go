package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/examples/jobqueue/queue"
	"github.com/latchkey-go/latchkey/sqllock"
)

// ways are the two, by their names on the command line.
var ways = map[string]func(*queue.Queue, queue.Locks) queue.Way{
	"advisory": queue.AdvisoryLock,
	"skip":     queue.SkipLocked,
}

// runWorker works on jobs until its input ends, and prints the attempts that were
// neither done nor failed.
func runWorker(ctx context.Context, f flags, in io.Reader, out io.Writer) error {
	if !f.verbose {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	url := os.Getenv("DATABASE_URL")
	db, err := connect(url, f.schema, f.workers+2)
	if err != nil {
		return err
	}
	defer db.Close()
	lockDB, err := connect(url, f.schema, 5) // of its own: work that fills the other cannot keep it from reconnecting
	if err != nil {
		return err
	}
	defer lockDB.Close()

	var q *queue.Queue
	var locks *sqllock.Session
	err = patiently(ctx, func() (err error) {
		q, err = queue.Open(ctx, db, demoKinds(db), queue.WithPoll(20*time.Millisecond), queue.WithBackoff(20*time.Millisecond),
			queue.WithReapFloor(500*time.Millisecond), queue.WithEnded(func(job queue.Job, o queue.Outcome) {
				if o != queue.Done && o != queue.Failed {
					fmt.Fprintln(out, o)
				}
			}))
		return err
	})
	if err == nil {
		err = patiently(ctx, func() (err error) {
			locks, err = sqllock.Open(ctx, lockDB.DB, sqllock.WithLease(f.lease))
			return err
		})
	}
	if err != nil || ctx.Err() != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	queue.Run(ctx, ways[f.worker](q, locks), f.workers)
	return locks.Close()
}

// patiently tries open until the database is there: workers may be started while it is
// away. It gives up when ctx ends, without an error: we were told to stop.
func patiently(ctx context.Context, open func() error) error {
	for ctx.Err() == nil {
		err := open()
		if !errors.Is(err, queue.ErrUnavailable) && !errors.Is(err, sqllock.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// demoKinds are jobs that keep account of themselves: an attempt when it begins, outside
// any transaction, and an effect when it is done.
func demoKinds(db *sqlx.DB) queue.Kinds {
	kind := func(fails func(job queue.Job) error) queue.Kind {
		return queue.Kind{Work: func(ctx context.Context, job queue.Job) (queue.Effect, error) {
			if _, err := db.ExecContext(ctx, "INSERT INTO attempts VALUES ($1, $2)", job.ID, job.Attempt); err != nil {
				return nil, err
			}
			if err := fails(job); err != nil {
				return nil, err
			}
			return func(ctx context.Context, tx *sqlx.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ($1, $2)", job.ID, job.Attempt)
				return err
			}, nil
		}}
	}
	single := kind(func(queue.Job) error { return nil })
	single.Singleton = true
	return queue.Kinds{
		"good":   kind(func(queue.Job) error { return nil }),
		"single": single,
		"flaky": kind(func(job queue.Job) error {
			if job.Attempt == 1 {
				return errors.New("not the first time")
			}
			return nil
		}),
		"panics": kind(func(job queue.Job) error {
			if job.Attempt == 1 {
				panic("not the first time")
			}
			return nil
		}),
		"hopeless": kind(func(queue.Job) error { return errors.New("never") }),
		"frozen":   kind(func(job queue.Job) error { return waitForThaw(db, job) }),
	}
}

// waitForThaw has the first attempt wait, heedless of its context, until the job has been done by
// another: what a process does that was frozen in the midst of it.
func waitForThaw(db *sqlx.DB, job queue.Job) error {
	for job.Attempt == 1 {
		var done bool
		if err := db.Get(&done, "SELECT status = 'done' FROM jobs WHERE id = $1", job.ID); err == nil && done {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}
