package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// An Observer is told what becomes of ticks: by the goroutine that runs the job, so its functions should be
// quick. Each may be nil.
type Observer struct {
	Began   func(*Run)
	Ended   func(Ended)
	Refused func(Refused)
}

// Ended is a run that has ended.
type Ended struct {
	*Run
	Took     time.Duration
	Outlived int   // how many later ticks were due before it ended: nobody could run them in time
	Panicked bool  // only where Ticks.Do ran it
	Err      error // of giving the lock back: sqllock.ErrLost if it was lost during the run
}

// Refused is a tick that this instance does not run, which may mean that another one does.
type Refused struct {
	Job  string    // "" where an Elector could not tell who leads: then it is all jobs
	Tick time.Time // zero if none is due
	Err  error     // that of Begin, Pass or IsLeader
}

func (o *Observer) begin(r *Run) {
	if o.Began != nil {
		o.Began(r)
	}
}

func (o *Observer) end(e Ended) {
	if o.Ended != nil {
		o.Ended(e)
	}
}

// refuse tells o, and is err.
func (o *Observer) refuse(job string, tick time.Time, err error) error {
	if o.Refused != nil {
		o.Refused(Refused{job, tick, err})
	}
	return err
}

// Logged is an Observer that logs: as an error whatever keeps this instance from running ticks, as a warning a
// run that outlived its tick, lost its lock or panicked, and as of level debug that another instance was first.
func Logged(log *slog.Logger) Observer {
	return Observer{
		Ended: func(e Ended) {
			if e.Outlived > 0 || e.Panicked || e.Err != nil {
				log.Warn("cron: a run did not end well", "job", e.Job, "tick", e.Tick, "took", e.Took,
					"skipped", e.Outlived, "panicked", e.Panicked, "error", e.Err)
			}
		},
		Refused: func(r Refused) {
			level := slog.LevelError
			if errors.Is(r.Err, sqllock.ErrHeld) || errors.Is(r.Err, sqllock.ErrPassed) {
				level = slog.LevelDebug
			}
			log.Log(context.Background(), level, "cron: this instance does not run a tick", "job", r.Job, "tick", r.Tick, "error", r.Err)
		},
	}
}
