// Jobqueue is a queue of jobs in PostgreSQL. Each job is done once, though
// workers are killed and the database goes away.
//
//	export DATABASE_URL=postgres://user:password@host/database
//	go run . -migrate
//	go run . -enqueue 1000
//	go run .               # works on them, in as many processes as you like
//
// Copy from this file, and package queue.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/examples/jobqueue/queue"
	"github.com/latchkey-go/latchkey/sqllock"
)

func main() {
	migrate := flag.Bool("migrate", false, "make the tables and end")
	enqueue := flag.Int("enqueue", 0, "add so many jobs and end")
	workers := flag.Int("workers", 8, "how many jobs to work on at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), *migrate, *enqueue, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "jobqueue:", err)
		os.Exit(1)
	}
}

// run works on jobs until ctx ends. Then it finishes those in progress.
func run(ctx context.Context, databaseURL string, migrate bool, enqueue, workers int) error {
	// Open. The locks have a pool of their own, so that work that fills the other
	// pool cannot keep them from the database.
	db, err := open(databaseURL, workers+2)
	if err != nil {
		return err
	}
	defer db.Close()
	switch {
	case migrate:
		return makeTables(ctx, db)
	case enqueue > 0:
		return addMails(ctx, db, enqueue)
	}
	lockDB, err := open(databaseURL, 5)
	if err != nil {
		return err
	}
	defer lockDB.Close()
	locks, err := sqllock.Open(ctx, lockDB.DB)
	if err != nil {
		return err
	}
	defer locks.Close()
	kinds := queue.Kinds{"mail": {Work: mail, Timeout: time.Minute}}
	q, err := queue.Open(ctx, db, locks, kinds, queue.Options{})
	if err != nil {
		return err
	}

	// Work, until a signal.
	fmt.Println("ready")
	q.Run(ctx, workers)
	return nil
}

func open(databaseURL string, conns int) (*sqlx.DB, error) {
	db, err := sqlx.Open("pgx", databaseURL)
	if err != nil {
		return nil, errors.New("DATABASE_URL is not understood") // the driver's own error may show it
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// mail is the work of a job. It runs outside any transaction, at least once. The
// Effect that it returns runs in the transaction that marks the job done, exactly
// once.
func mail(ctx context.Context, job queue.Job) (queue.Effect, error) {
	select {
	case <-time.After(10 * time.Millisecond): // stands for the work
	case <-ctx.Done():
		return nil, context.Cause(ctx) // the job is tried again later
	}
	return func(ctx context.Context, tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO mails (job_id, attempt) VALUES ($1, $2)", job.ID, job.Attempt)
		return err
	}, nil
}

// makeTables makes the tables of the queue, and that of the effects.
func makeTables(ctx context.Context, db *sqlx.DB) error {
	for _, statement := range append(queue.Schema(), "CREATE TABLE IF NOT EXISTS mails (job_id bigint NOT NULL, attempt integer NOT NULL)") {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return errors.New("the tables cannot be made") // the driver's own error may name a host
		}
	}
	return nil
}

// addMails adds n jobs, all or none.
func addMails(ctx context.Context, db *sqlx.DB, n int) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return queue.ErrUnavailable
	}
	defer func() { _ = tx.Rollback() }()
	for range n {
		if _, err := queue.Enqueue(ctx, tx, queue.Job{Kind: "mail"}); err != nil {
			return err
		}
	}
	return tx.Commit()
}
