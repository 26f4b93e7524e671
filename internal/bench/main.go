// Command bench measures latchkey next to what people use instead, on a
// PostgreSQL and a Redis that it starts and removes. It prints tables in Markdown.
//
//	go run .                            # all of it
//	go run . -quick                     # the main ratios
//	go run . -scenarios pairs,stacks    # these alone
//	GOMAXPROCS=1 go run .               # one processor for the client
package main

import (
	"cmp"
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
)

// A scenario is one comparison. It leaves its figures in a bench.
type scenario struct {
	name, text string
	quick      bool // -quick has it
	run        func(ctx context.Context, b *bench) error
}

// scenarios in the order in which they run.
var scenarios = []scenario{
	{name: "pairs", quick: true, run: pairs, text: "Each caller acquires and releases the lock of a name of its own, again and again."},
	{name: "burst", quick: true, run: burst, text: "64 callers want one key that another instance holds, and are rejected."},
	{name: "stacks", run: stacks, text: "512 callers on two instances make pairs on one limit or on three at once. Each limit has room for all of them."},
	{name: "requests", run: requests, text: "64 clients send requests to a route that does nothing."},
}

func main() {
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
	quick           bool
	chosen          []scenario
	rounds          int
	warmUp, measure time.Duration
}

func parse(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&p.quick, "quick", false, "measure the main ratios in a minute, with -rounds 2 and -measure 200ms")
	only := flags.String("scenarios", "", "run these alone, separated by commas")
	flags.IntVar(&p.rounds, "rounds", 0, "how often each is measured (5)")
	flags.DurationVar(&p.measure, "measure", 0, "for how long each time (400ms)")
	if err := flags.Parse(args); err != nil {
		return p, err
	}
	if flags.NArg() > 0 {
		return p, fmt.Errorf("what is %q? there are flags only", flags.Arg(0))
	}
	if p.quick {
		p.rounds, p.measure = cmp.Or(p.rounds, 2), cmp.Or(p.measure, 200*time.Millisecond)
	}
	p.rounds, p.measure = cmp.Or(p.rounds, 5), cmp.Or(p.measure, 400*time.Millisecond)
	p.warmUp = min(p.measure/2, 400*time.Millisecond)
	p.chosen = slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return p.quick && !s.quick })
	if *only == "" {
		return p, nil
	}
	p.chosen = nil
	for name := range strings.SplitSeq(*only, ",") {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return p, fmt.Errorf("no scenario is called %q", name)
		}
		p.chosen = append(p.chosen, scenarios[i])
	}
	return p, nil
}

// run measures the chosen scenarios, and prints a table of each. One that fails
// does not keep the others from being measured.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p, err := parse(args, stderr)
	if err != nil {
		return err
	}
	s, err := startServers(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	fmt.Fprintf(stdout, "PostgreSQL %s, Redis %s, %s. A figure is the median of %d rounds of %v.\n",
		s.postgresVersion, s.redisVersion, machine(), p.rounds, p.measure)
	for _, one := range p.chosen {
		if ctx.Err() != nil {
			break
		}
		b := &bench{servers: s, plan: p, progress: stderr}
		if failed := one.run(ctx, b); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", one.name, failed))
		}
		if len(b.series) > 0 {
			fmt.Fprintf(stdout, "\n## %s\n\n%s\n\n%s", one.name, one.text, table(b.series))
		}
	}
	fmt.Fprintf(stdout, "\nIt took %v.\n", time.Since(began).Round(time.Second))
	return errors.Join(err, context.Cause(ctx), s.close())
}
