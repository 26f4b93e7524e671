package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The roles of a process under test, and of one that says which tables it needs.
const (
	role       = "worker"
	schemaRole = "schema"
)

// statusEvery is how often a process reports its status.
const statusEvery = 20 * time.Millisecond

// Main does not return in a process that Start has started. Call it before
// anything else.
func Main() {
	subprocess.MainReader(role, runChild)
	subprocess.MainReader(schemaRole, func(_ io.Reader, d sqllock.Dialect) error {
		return json.NewEncoder(os.Stdout).Encode(schemaOf(d))
	})
}

// runChild works until it is told to drain, by SIGTERM, and reports. It ends when
// its standard input does, and so with its parent.
func runChild(stdin io.Reader, config Config) error {
	draining, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o := orders{rest: make(chan struct{}), probe: make(chan struct{}, 1)}
	orphaned := make(chan struct{})
	go func() {
		defer close(orphaned)
		readCommands(stdin, o)
		if draining.Err() == nil { // no parent is left to read a report
			os.Exit(1)
		}
	}()
	before := runtime.NumGoroutine()
	w, err := open(config)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	err = w.work(draining, o, func(s Status) error { return out.Encode(line{Status: &s}) })
	if err := errors.Join(err, w.close()); err != nil {
		return err
	}
	if err := out.Encode(line{Report: leftover(before)}); err != nil {
		return err
	}
	stop()
	<-orphaned
	return nil
}

// orders are what a process is told to do in addition to draining.
type orders struct {
	rest  chan struct{} // closed when the callers are to end
	probe chan struct{}
}

// readCommands carries out commands until there are no more.
func readCommands(in io.Reader, o orders) {
	for commands := json.NewDecoder(in); ; {
		var c command
		if commands.Decode(&c) != nil {
			return
		}
		switch c {
		case doRest:
			close(o.rest)
		case doProbe:
			o.probe <- struct{}{}
		}
	}
}

// leftoverTimeout covers goroutines that are stuck in a driver's attempt to
// connect, which the kit bounds by 5 s.
const leftoverTimeout = 8 * time.Second

// leftover waits until there are no more goroutines than before, and reports
// those that stay.
func leftover(before int) *Report {
	deadline := time.Now().Add(leftoverTimeout)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	more := runtime.NumGoroutine() - before
	if more <= 0 {
		return &Report{}
	}
	stacks := make([]byte, 64<<10)
	return &Report{Goroutines: more, Stacks: string(stacks[:runtime.Stack(stacks, true)])}
}

// reportStatus calls say with the status of w until ctx ends, and once more
// then.
func (w *work) reportStatus(ctx context.Context, say func(Status) error) error {
	for {
		if err := say(w.status()); err != nil {
			return err
		}
		if Pause(ctx, statusEvery) != nil {
			return say(w.status())
		}
	}
}

// status returns the counts. Each is exact by itself; together they are not one
// snapshot.
func (w *work) status() Status {
	stats := w.session.Stats()
	s := Status{
		At:          history.Now(),
		LastOK:      history.Moment(w.lastOK.Load()),
		Granted:     w.granted.Load(),
		Held:        w.held.Load(),
		Unserved:    w.unserved.Load(),
		Lost:        w.lost.Load(),
		Written:     w.written.Load(),
		Rested:      w.rested.Load(),
		Holding:     stats.Held,
		Connections: stats.Losses,
	}
	if stuck := w.stuck.Load(); stuck != nil {
		s.Probed, s.Stuck = true, *stuck
	}
	return s
}

// Pause waits for d. It returns the cause if ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
