package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"text/tabwriter"
	"time"
)

// A way is one in which a leader goes.
type way struct {
	name string
	end  func(*process) error
	mend func(context.Context, *fleet, *process) error // when the next has taken over
}

var ways = []way{
	{"exit", func(p *process) error { p.tell(); return nil }, replace},
	{"kill -9", func(p *process) error { return p.command.Process.Kill() }, replace},
	{"freeze", func(p *process) error { return p.command.Process.Signal(syscall.SIGSTOP) }, thaw},
}

// replace starts another candidate for one that has ended.
func replace(ctx context.Context, f *fleet, p *process) error {
	f.remove(p)
	return f.start(ctx)
}

// thaw ends a freeze: the process that led wakes up, and must see that it does not any more.
func thaw(_ context.Context, _ *fleet, p *process) error { return wake(p) }

// wake does nothing to a process that is awake.
func wake(p *process) error { return p.command.Process.Signal(syscall.SIGCONT) }

// rounds is how often a leader goes in each way; reignFor how long it is let alone before.
const (
	rounds   = 2
	reignFor = 300 * time.Millisecond
)

// A going is one leader's.
type going struct {
	way   string
	who   int
	next  int
	after time.Duration
	// What the health endpoints say when the next leads, and again when the one that
	// went has been replaced or has woken up.
	healthNext, healthLater string
}

// show runs the fleet, has leaders go, and prints who led when. It fails if two led at
// once.
func show(ctx context.Context, url string, out io.Writer) error {
	fmt.Fprintf(out, "%d candidates, each a process, on one PostgreSQL, with a lease of %v. Leaders exit, are killed and freeze.\n"+
		"This takes about 10 s …\n\n", fleetSize, lease)
	began := time.Now()
	var goings []going
	var chronicled []reign
	err := withFleet(ctx, url, func(f *fleet) error {
		for range rounds {
			for _, w := range ways {
				g, err := f.takeOver(ctx, w)
				if err != nil {
					return err
				}
				goings = append(goings, g)
			}
		}
		err := f.stop() // after it all that they told is in the chronicle
		chronicled = f.chronicle.inOrder()
		return err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(printReigns(out, began, chronicled), printGoings(out, goings)); err != nil {
		return err
	}
	return printVerdict(out, chronicled)
}

// takeOver ends the leader's term in one way and waits for the next leader.
func (f *fleet) takeOver(ctx context.Context, w way) (g going, err error) {
	select {
	case <-time.After(reignFor):
	case <-ctx.Done():
		return g, context.Cause(ctx)
	}
	old, err := f.awaitLeader(ctx, time.Now(), 0)
	if err != nil {
		return g, err
	}
	leader, at := f.candidate(old.number), time.Now()
	if err := w.end(leader); err != nil {
		return g, err
	}
	next, err := f.awaitLeader(ctx, at, old.number)
	if err != nil {
		return g, err
	}
	g = going{way: w.name, who: old.number, next: next.number, after: time.Unix(0, next.first).Sub(at)}
	g.healthNext = f.health(ctx)
	if err := w.mend(ctx, f, leader); err != nil {
		return g, err
	}
	g.healthLater = f.health(ctx)
	return g, nil
}

// health is what the candidates say of themselves.
func (f *fleet) health(ctx context.Context) string {
	leaders, silent := f.leaders(ctx)
	text := fmt.Sprint("leads: ", leaders)
	if silent > 0 {
		text += fmt.Sprintf(", %d silent", silent)
	}
	return text
}

func printReigns(out io.Writer, began time.Time, reigns []reign) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "LEADER\tFROM\tTO\tDEEDS\tTOKEN")
	for _, r := range reigns {
		fmt.Fprintf(table, "candidate %d\t%.3f s\t%.3f s\t%d\t%s\n", r.number,
			time.Unix(0, r.first).Sub(began).Seconds(), time.Unix(0, r.last).Sub(began).Seconds(), r.deeds, r.token)
	}
	return table.Flush()
}

func printGoings(out io.Writer, goings []going) error {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "LEADER\tGOES BY\tNEXT\tLEADS AFTER\tHEALTH THEN\tHEALTH LATER")
	for _, g := range goings {
		fmt.Fprintf(table, "candidate %d\t%s\tcandidate %d\t%v\t%s\t%s\n",
			g.who, g.way, g.next, g.after.Round(time.Millisecond), g.healthNext, g.healthLater)
	}
	return table.Flush()
}

func printVerdict(out io.Writer, reigns []reign) error {
	switch n := overlaps(reigns); {
	case n > 0:
		return fmt.Errorf("%d times two led at once", n)
	case len(reigns) <= rounds*len(ways):
		return errors.New("a leader that went was not followed by another")
	case !tokensGrow(reigns):
		return errors.New("a later leader had a smaller token")
	}
	fmt.Fprintf(out, "\nOK: %d terms, never two at once, and each with a greater token than the one before.\n", len(reigns))
	return nil
}
