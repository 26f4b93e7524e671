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
)

// role is that of a process under test.
const role = "worker"

// statusEvery is how often a process reports its status.
const statusEvery = 20 * time.Millisecond

// Main does not return in a process that Start has started. Call it before
// anything else.
func Main() { subprocess.MainReader(role, runChild) }

// runChild works until it is told to drain, by its parent or by SIGTERM, and
// reports. It ends when its standard input does, and so with its parent.
func runChild(stdin io.Reader, config Config) error {
	draining, drain := context.WithCancel(context.Background())
	defer drain()
	draining, stop := signal.NotifyContext(draining, syscall.SIGTERM)
	defer stop()
	o := orders{floods: make(chan int, 16), rest: make(chan struct{}), probe: make(chan struct{}, 1)}
	orphaned := make(chan struct{})
	go func() {
		defer close(orphaned)
		readCommands(stdin, drain, o)
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
	if err := w.work(draining, o, func(s Status) error { return out.Encode(line{Status: &s}) }); err != nil {
		return errors.Join(err, w.close())
	}
	if err := w.close(); err != nil {
		return err
	}
	if err := out.Encode(line{Report: leftover(before)}); err != nil {
		return err
	}
	stop()
	<-orphaned
	return nil
}

// orders are what a process is told to do beside draining.
type orders struct {
	floods chan int
	rest   chan struct{} // closed when the callers are to end
	probe  chan struct{}
}

// readCommands carries out commands until there are no more.
func readCommands(in io.Reader, drain func(), o orders) {
	for commands := json.NewDecoder(in); ; {
		var c command
		if commands.Decode(&c) != nil {
			return
		}
		switch c.Do {
		case doDrain:
			drain()
		case doFlood:
			o.floods <- c.N
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
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		if err := say(w.status()); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return say(w.status())
		}
	}
}

// status returns the counts. Each is exact by itself; together they are not one
// snapshot.
func (w *work) status() Status {
	stats := w.session.Stats()
	return Status{
		At:           history.Now(),
		LastOK:       history.Moment(w.counts.lastOK.Load()),
		Granted:      w.counts.granted.Load(),
		Held:         w.counts.held.Load(),
		Unavailable:  w.counts.unavailable.Load(),
		NotExclusive: w.counts.notExclusive.Load(),
		Lost:         w.counts.lost.Load(),
		Written:      w.counts.written.Load(),
		Fenced:       w.counts.fenced.Load(),
		Flooded:      w.counts.flooded.Load(),
		Cancelled:    w.counts.cancelled.Load(),
		Rested:       w.rested.Load(),
		Probed:       w.stuck.Load() != nil,
		Stuck:        w.stuckKeys(),
		Holding:      stats.Held,
		Connected:    stats.Connections > 0,
		Connections:  stats.Losses,
		Watched:      stats.Watched,
	}
}
