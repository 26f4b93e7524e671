// Package demo starts instances of a service with scheduled jobs, as processes
// whose clocks differ. It kills two of them in a run, and counts in a table of all
// runs whether a tick was run twice.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// skews are how far the instances' clocks are ahead.
var skews = []time.Duration{1300 * time.Millisecond, 0, -900 * time.Millisecond, 600 * time.Millisecond}

// Main runs the demonstration. It starts this program again for each instance,
// and calls run there. The database is the PostgreSQL that DATABASE_URL names, or
// a throwaway one.
func Main(run func(context.Context, *Instance) error) {
	subprocess.Main(role, func(ctx context.Context, o orders) error { return runInstance(ctx, o, run) })
	length := flag.Duration("for", 9*time.Second, "how long the instances work, at least")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "cron: it takes flags only")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := withDatabase(ctx, func(d *database) error { return demonstrate(ctx, d, *length, os.Stdout) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

// demonstrate starts the instances, kills one in a slow run and one that leads,
// and prints what became of each tick. It fails if a tick was run twice.
func demonstrate(ctx context.Context, d *database, length time.Duration, out io.Writer) (err error) {
	events := make(chan event)
	collected := make(chan []event, 1)
	fleet := &fleet{}
	killer := &killer{fleet: fleet}
	go collect(events, killer, collected)
	fmt.Fprintf(out, "%d instances of a service, each a process, on one PostgreSQL. Each schedules the same five jobs; one of them\n"+
		"should run each tick. Their clocks are ahead by %v. Two instances are killed in the middle of a run.\n"+
		"This takes a little longer than %v …\n", len(skews), skews, length)
	err = fleet.start(ctx, d, events)
	if err == nil {
		err = act(ctx, killer, length)
	}
	err = errors.Join(err, fleet.stop())
	close(events) // all senders have ended
	all := <-collected
	if err != nil {
		return err
	}
	printTicks(out, all)
	if !d.throwaway {
		fmt.Fprintln(out, "\nThe table latchkey_watermarks stays in the database; what else the demonstration made there is removed.")
	}
	return printResult(ctx, out, d, all, fleet)
}

// collect keeps what the instances report, and lets k act on it.
func collect(events <-chan event, k *killer, collected chan<- []event) {
	var all []event
	for e := range events {
		all = append(all, e)
		k.hear(e)
	}
	collected <- all
}

// act lets the instances work for length, and has the killer kill two of them
// meanwhile.
func act(ctx context.Context, k *killer, length time.Duration) error {
	for _, job := range []string{Slow, Elected} {
		if err := sleep(ctx, length/3); err != nil {
			return err
		}
		if err := k.killNext(ctx, job); err != nil {
			return err
		}
	}
	return sleep(ctx, length/3)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
