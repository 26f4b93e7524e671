// Jobqueue is a queue of jobs in PostgreSQL, in two ways. Each job is done
// once, though workers are killed and the database goes away. `go run .` runs
// both ways on a few hundred jobs, with kills and an outage, and prints what
// became of the jobs; this takes 20 seconds. `go run . -bench` measures jobs
// per second, in a minute.
//
// The recipe is this file and package queue. Package internal/demo starts the
// workers and kills them.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/examples/jobqueue/internal/demo"
	"github.com/latchkey-go/latchkey/examples/jobqueue/queue"
	"github.com/latchkey-go/latchkey/sqllock"
)

func main() { demo.Main(worker) }

// worker is one process that works on jobs, until ctx ends. Then it finishes those
// in progress.
func worker(ctx context.Context, d *demo.Worker) error {
	// Open. The locks have a pool of their own, so that work that fills the other
	// pool cannot keep them from the database.
	db, err := open(d.DatabaseURL, d.AtOnce+2)
	if err != nil {
		return err
	}
	defer db.Close()
	lockDB, err := open(d.DatabaseURL, 5)
	if err != nil {
		return err
	}
	defer lockDB.Close()
	var q *queue.Queue
	var locks *sqllock.Session
	err = untilAvailable(ctx, func() (err error) {
		q, err = queue.Open(ctx, db, kinds(db, d), d.Options()...)
		return err
	})
	if err == nil {
		err = untilAvailable(ctx, func() (err error) {
			locks, err = sqllock.Open(ctx, lockDB.DB, sqllock.WithLease(d.Lease))
			return err
		})
	}
	if err != nil || ctx.Err() != nil {
		return err
	}

	// Work. A job whose lock is lost ends: its context does. queue.SkipLocked
	// is the other way.
	way := queue.AdvisoryLock
	if d.Way == demo.Skip {
		way = queue.SkipLocked
	}
	fmt.Println("ready")
	queue.Run(ctx, way(q, locks), d.AtOnce)

	// Shut down. Close releases all locks that the Session still holds.
	return locks.Close()
}

func open(databaseURL string, conns int) (*sqlx.DB, error) {
	db, err := sqlx.Open("pgx", databaseURL)
	if err != nil {
		return nil, errors.New("DATABASE_URL is not understood") // the driver's error may show a password
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// kinds returns what to do for the jobs of each kind.
//
// Work runs outside any transaction, at least once. The Effect that it returns runs
// in the transaction that marks the job done, exactly once.
func kinds(db *sqlx.DB, d *demo.Worker) queue.Kinds {
	kind := queue.Kind{Work: func(ctx context.Context, job queue.Job) (queue.Effect, error) {
		if err := d.Work(ctx, db, job); err != nil {
			return nil, err // the job is tried again later
		}
		return func(ctx context.Context, tx *sqlx.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ($1, $2)", job.ID, job.Attempt)
			return err
		}, nil
	}}
	singleton := kind
	singleton.Singleton = true // at most one job of this kind runs at a time, in all processes
	all := queue.Kinds{demo.Single: singleton}
	for _, name := range demo.Kinds {
		all[name] = kind
	}
	return all
}

// untilAvailable calls open until the database is there: a worker may start
// during an outage. It returns nil when ctx ends.
func untilAvailable(ctx context.Context, open func() error) error {
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
