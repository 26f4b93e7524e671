package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// skews are how far the instances' clocks are ahead.
var skews = []time.Duration{1300 * time.Millisecond, 0, -900 * time.Millisecond, 600 * time.Millisecond}

// demonstrate starts the instances, kills one in a slow run and one that leads, and prints what became of each
// tick. It fails if a tick was run twice.
func demonstrate(ctx context.Context, d *database, f flags, out io.Writer) (err error) {
	events := make(chan event)
	collected := make(chan []event, 1)
	fleet := &fleet{}
	killer := &killer{fleet: fleet}
	go collect(events, killer, collected)
	fmt.Fprintf(out, "%d instances, each a process, on one PostgreSQL; their clocks are ahead by %v. Five jobs, which each instance\n"+
		"schedules. Two instances are killed in a run. This takes %v, and a little longer, until each of the two is in a run and can be killed …\n",
		len(skews), skews, f.length)
	err = fleet.start(ctx, d, events)
	if err == nil {
		err = act(ctx, killer, f.length)
	}
	err = errors.Join(err, fleet.stop())
	close(events) // those who send have ended
	all := <-collected
	if err != nil {
		return err
	}
	printTicks(out, all)
	if !d.throwaway {
		fmt.Fprintln(out, "\nThe table latchkey_marks stays in the database; what else the demonstration made there goes.")
	}
	return printVerdict(ctx, out, d, all, fleet)
}

// collect keeps what the instances tell, and lets k act on it.
func collect(events <-chan event, k *killer, collected chan<- []event) {
	var all []event
	for e := range events {
		all = append(all, e)
		k.hear(e)
	}
	collected <- all
}

// act lets the instances work for length and longer, until some have died meanwhile.
func act(ctx context.Context, k *killer, length time.Duration) error {
	for _, job := range []string{slow, elected} {
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
