package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// An event is what an instance tells the parent, a line of JSON.
type event struct {
	What     what
	Instance int
	Job      string
	Tick     time.Time
	Why      string        `json:",omitempty"` // of refusals and failures
	Took     time.Duration `json:",omitempty"`
	Outlived int           `json:",omitempty"`
}

type what string

const (
	ready    what = "ready"
	began    what = "began"
	working  what = "working" // the run has left its row
	worked   what = "worked"
	ended    what = "ended"
	refused  what = "refused"
	panicked what = "panicked" // by cron.Recover's account
	failed   what = "failed"
)

// Why a tick is refused, in short.
const (
	held   = "held"
	passed = "passed"
)

// events sends them.
type events struct {
	instance int

	mu  sync.Mutex // protects what follows
	out *json.Encoder
	at  map[string]time.Time // the last tick of a job that began here
}

func newEvents(out io.Writer, instance int) *events {
	return &events{instance: instance, out: json.NewEncoder(out), at: map[string]time.Time{}}
}

func (e *events) send(ev event) {
	ev.Instance = e.instance
	e.mu.Lock()
	defer e.mu.Unlock()
	if ev.What == began {
		e.at[ev.Job] = ev.Tick
	}
	_ = e.out.Encode(ev) // a parent that is gone is noticed elsewhere
}

// withTick is ctx with the tick of job, where gocron gives a task no other way to know it.
func (e *events) withTick(ctx context.Context, job string) context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	return context.WithValue(ctx, tickKey{}, e.at[job])
}

func (e *events) observer() Observer {
	return Observer{
		Began: func(r *Run) { e.send(event{What: began, Job: r.Job, Tick: r.Tick}) },
		Ended: func(r Ended) {
			e.send(event{What: ended, Job: r.Job, Tick: r.Tick, Took: r.Took, Outlived: r.Outlived})
		},
		Refused: func(r Refused) { e.send(event{What: refused, Job: r.Job, Tick: r.Tick, Why: inShort(r.Err)}) },
	}
}

func inShort(err error) string {
	switch {
	case errors.Is(err, sqllock.ErrHeld):
		return held
	case errors.Is(err, sqllock.ErrPassed):
		return passed
	}
	return err.Error()
}

// Info and Error are cron.Logger's: cron.Recover reports panics to it.
func (*events) Info(string, ...any) {}

func (e *events) Error(err error, message string, _ ...any) {
	e.send(event{What: panicked, Why: message + ": " + err.Error()})
}
