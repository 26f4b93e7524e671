package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/examples/jobqueue/queue"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// The two ways, by their names on the command line.
const (
	Advisory = "advisory"
	Skip     = "skip"
)

// Single is the kind of jobs that run one at a time.
const Single = "single"

// Kinds are all other kinds of jobs.
var Kinds = []string{"good", "flaky", "panics", "hopeless"}

// role is the role of a worker's process.
const role = "worker"

// A Worker is the configuration of a worker, and what the demonstration adds to it.
type Worker struct {
	DatabaseURL string
	Way         string // Advisory or Skip
	AtOnce      int    // how many jobs at a time
	Lease       time.Duration
	Verbose     bool
}

// WorkerMain calls run and does not return, in a worker's process.
func WorkerMain(run func(context.Context, *Worker) error) {
	subprocess.Main(role, func(ctx context.Context, w *Worker) error {
		if !w.Verbose {
			slog.SetDefault(slog.New(slog.DiscardHandler))
		}
		return run(ctx, w)
	})
}

// Options returns the options of the queue, with short times. The worker prints the
// attempts that were neither done nor failed.
func (*Worker) Options() []queue.Option {
	return []queue.Option{
		queue.WithPoll(20 * time.Millisecond), queue.WithBackoff(20 * time.Millisecond), queue.WithReapFloor(500 * time.Millisecond),
		queue.WithEnded(func(_ queue.Job, o queue.Outcome) {
			if o != queue.Done && o != queue.Failed {
				fmt.Println(o)
			}
		}),
	}
}

// Work is the work of a job. It stores the attempt, outside any transaction, and
// fails in the way of the job's kind.
func (*Worker) Work(ctx context.Context, db *sqlx.DB, job queue.Job) error {
	if _, err := db.ExecContext(ctx, "INSERT INTO attempts VALUES ($1, $2)", job.ID, job.Attempt); err != nil {
		return err
	}
	switch first := job.Attempt == 1; {
	case job.Kind == "flaky" && first:
		return errors.New("not the first time")
	case job.Kind == "panics" && first:
		panic("not the first time")
	case job.Kind == "hopeless":
		return errors.New("never")
	}
	return nil
}

// stopTimeout is how long a worker may take to finish the jobs in progress.
const stopTimeout = 30 * time.Second

// A Process is a worker, as its parent sees it.
type Process struct {
	*subprocess.Process

	ready    chan struct{}  // closed when it works, or has ended
	read     chan struct{}  // closed when it has ended and outcomes is complete
	outcomes map[string]int // what it printed; valid once read is closed
}

// StartProcess starts a worker.
func StartProcess(w Worker) (*Process, error) {
	started, err := subprocess.Start(role, w)
	if err != nil {
		return nil, err
	}
	p := &Process{Process: started, ready: make(chan struct{}), read: make(chan struct{}), outcomes: map[string]int{}}
	go p.follow()
	return p, nil
}

func (p *Process) follow() {
	defer close(p.read)
	begun := false
	for lines := bufio.NewScanner(p.Stdout); lines.Scan(); {
		if lines.Text() == "ready" && !begun {
			begun = true
			close(p.ready)
			continue
		}
		p.outcomes[lines.Text()]++
	}
	if !begun {
		close(p.ready)
	}
}

// Stop asks the worker to end, and waits until it has.
func (p *Process) Stop() error {
	defer func() { <-p.read }()
	if err := p.Process.Stop(stopTimeout); err != nil {
		return fmt.Errorf("a worker: %w", err)
	}
	return nil
}
