// Command bench measures latchkey next to what people use instead, on a
// PostgreSQL and a Redis that it starts and removes. It prints tables in Markdown.
//
//	go run .                              # all of it
//	go run . -quick                       # the main ratios
//	go run . -scenarios pairs,hand-over   # these alone
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/servers"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// scenarios in the order in which they run; quick is whether -quick has them.
var scenarios = []scenario{
	{name: "pairs", quick: true, run: pairs, text: "Each caller acquires and releases the lock of a name of its own, again and again."},
	{name: "one processor", run: onOneProcessor, text: "The same, with one processor for all that the client does (GOMAXPROCS=1)."},
	{name: "arrivals", run: arrivals, text: "256 callers who arrive at any moment: each rests for up to 20 ms after a pair. The times are those of the acquire."},
	{name: "held", run: held, text: "64 callers make pairs on a Session that holds so many other locks."},
	{name: "refusals", quick: true, run: refusals, text: "64 callers want one key that another instance holds."},
	{name: "http", run: requests, text: "64 clients request a route that does nothing, over HTTP/1.1 on loopback."},
	{name: "metrics", run: metrics, text: "Pairs through a limiter whose figures a module for metrics shows, or none. They are read ten times a second."},
	{name: "stacks", run: stacks, text: "512 callers on two instances make pairs on one limit or on three at once. Each limit has room for all of them."},
	{name: "waiters", run: waiting, text: "Four processes with 64 callers each wait for 16 keys. The times are those of the wait."},
	{name: "hand-over", run: handOver, text: "Four processes want the same 16 keys, each key by one caller in each process, who rests after a hold. " +
		"The times are those from the release in one process to the grant in another that waited."},
}

func main() {
	subprocess.Main(waiterRole, beWaiter) // does not return in a process that waits
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A plan is what to measure, and for how long.
type plan struct {
	quick   bool
	chosen  []scenario
	rounds  int
	warmUp  time.Duration
	measure time.Duration
}

func parse(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&p.quick, "quick", false, "measure the main ratios in under a minute")
	only := flags.String("scenarios", "", "run these alone, separated by commas")
	flags.IntVar(&p.rounds, "rounds", 0, "how often each is measured (5; quick: 2)")
	flags.DurationVar(&p.measure, "measure", 0, "for how long each time (400ms; quick: 200ms)")
	if err := flags.Parse(args); err != nil {
		return p, err
	}
	if flags.NArg() > 0 {
		return p, fmt.Errorf("what is %q? there are flags only", flags.Arg(0))
	}
	if p.chosen, err = choose(*only, p.quick); err != nil {
		return p, err
	}
	rounds, measure := 5, 400*time.Millisecond
	if p.quick {
		rounds, measure = 2, 200*time.Millisecond
	}
	if p.rounds <= 0 {
		p.rounds = rounds
	}
	if p.measure <= 0 {
		p.measure = measure
	}
	p.warmUp = min(p.measure/2, 400*time.Millisecond)
	return p, nil
}

// choose returns the scenarios to run: those that only names, or all.
func choose(only string, quick bool) (chosen []scenario, err error) {
	if only == "" {
		return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return quick && !s.quick }), nil
	}
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no scenario is called %q", name)
		}
		chosen = append(chosen, scenarios[i])
	}
	return chosen, nil
}

// run measures the chosen scenarios, and prints a table of each. One that fails
// does not keep the others from being measured.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parse(args, stderr)
	if err != nil {
		return err
	}
	s, err := servers.Start(ctx)
	if err != nil {
		return err
	}
	b := &bench{env: locks.Env{Postgres: s.Postgres, Redis: s.Redis.Addr}, server: s.Time, plan: p, progress: stderr}
	began := time.Now()
	fmt.Fprintf(stdout, "PostgreSQL %s, Redis %s, %s. A figure is the median of %d rounds of %v.\n", s.Version, s.Redis.Version, machine(), p.rounds, p.measure)
	for _, one := range p.chosen {
		if ctx.Err() != nil {
			break
		}
		b.series = nil
		if failed := one.run(ctx, b); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", one.name, failed))
		}
		if len(b.series) > 0 {
			fmt.Fprintf(stdout, "\n## %s\n\n%s\n\n%s", one.name, one.text, table(b.series))
		}
	}
	fmt.Fprintf(stdout, "\nIt took %v.\n", time.Since(began).Round(time.Second))
	return errors.Join(err, context.Cause(ctx), s.Close())
}
