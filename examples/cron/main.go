// Cron shows scheduled jobs on robfig/cron and gocron: every instance of a
// service schedules them, and one instance runs each tick.
//
//	export DATABASE_URL=postgres://user:password@host/database
//	go run . -migrate
//	go run .            # several times
//
// Copy from this file, and package ticks.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/robfig/cron/v3"

	"github.com/latchkey-go/latchkey/examples/cron/ticks"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

func main() {
	migrate := flag.Bool("migrate", false, "make the tables and end")
	takes := flag.Duration("takes", 100*time.Millisecond, "how long a run takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), *migrate, *takes); err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

// run runs jobs until ctx ends, and waits for those in flight.
func run(ctx context.Context, databaseURL string, migrate bool, takes time.Duration) error {
	// Open. The locks have a pool of their own, so that a busy service cannot keep
	// them from the database. The marks of the ticks are in the service's pool.
	db, err := openPool(databaseURL, 5)
	if err != nil {
		return err
	}
	defer db.Close()
	jobs := &jobs{db, takes}
	if migrate {
		return jobs.migrate(ctx)
	}
	lockDB, err := openPool(databaseURL, 3)
	if err != nil {
		return err
	}
	defer lockDB.Close()
	locks, err := sqllock.Open(ctx, lockDB)
	if err != nil {
		return err
	}
	defer locks.Close()
	once := ticks.New(locks, db, "cron-example")

	// robfig/cron. Jobs end when their lock is lost, and not when the service shuts
	// down. Recover reports a panic, after which the lock is released.
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse("CRON_TZ=UTC */2 * * * * *")
	if err != nil {
		return err
	}
	crontab := cron.New()
	crontab.Schedule(schedule, cron.NewChain(cron.Recover(cron.PrintfLogger(log.Default()))).Then(
		ticks.Job(context.WithoutCancel(ctx), once, "invoices", schedule, jobs.work("invoices"))))

	// gocron. It counts intervals from the instance's start. Let them begin at a
	// tick: an instance that comes just before one would sometimes be late for it.
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		return err
	}
	every := ticks.Every(2 * time.Second)
	_, err = scheduler.NewJob(gocron.DurationJob(2*time.Second), ticks.Task(once, "report", every, jobs.work("report")),
		gocron.WithStartAt(gocron.WithStartDateTime(every.Next(time.Now().Add(100*time.Millisecond)))))
	if err != nil {
		return err
	}
	crontab.Start()
	scheduler.Start()
	fmt.Println("ready")

	// Shut down: first the schedulers, then the locks.
	<-ctx.Done()
	err = scheduler.Shutdown()
	<-crontab.Stop().Done()
	return err
}

func openPool(databaseURL string, n int) (*sql.DB, error) {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return nil, errors.New("DATABASE_URL is not understood") // the driver's own error may show it
	}
	db.SetMaxOpenConns(n)
	return db, nil
}

// jobs are the work. Each run leaves a row.
type jobs struct {
	db    *sql.DB
	takes time.Duration
}

func (j *jobs) migrate(ctx context.Context) error {
	for _, statement := range append(watermark.Schema(sqllock.PostgreSQL), `CREATE TABLE IF NOT EXISTS cron_example_runs (
		job   text        NOT NULL,
		tick  timestamptz NOT NULL,
		began timestamptz NOT NULL DEFAULT clock_timestamp(),
		ended timestamptz -- null: the run goes on, or was cut off
	)`) {
		if _, err := j.db.ExecContext(ctx, statement); err != nil {
			return errors.New("the tables cannot be made") // the driver's own error may name a host
		}
	}
	return nil
}

// work returns the work of a job.
func (j *jobs) work(job string) func(context.Context) {
	return func(ctx context.Context) {
		tick, _ := ticks.TickFromContext(ctx)
		if _, err := j.db.ExecContext(ctx, "INSERT INTO cron_example_runs (job, tick) VALUES ($1, $2)", job, tick); err != nil {
			log.Print("a run cannot be stored")
			return
		}
		select {
		case <-time.After(j.takes):
		case <-ctx.Done(): // another instance may run the job
			return
		}
		_, _ = j.db.ExecContext(ctx, "UPDATE cron_example_runs SET ended = clock_timestamp() WHERE job = $1 AND tick = $2", job, tick)
		fmt.Println("ran", job, tick.UTC().Format(time.TimeOnly))
	}
}
