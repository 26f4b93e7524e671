// Command bench measures latchkey next to what people use instead, on a
// PostgreSQL and a Redis that it starts and removes. `make bench` runs it.
//
//	go run .                          # all of it: tables in Markdown, and the project's goals
//	go run . -quick                   # the main ratios
//	go run . -scenarios pairs,held    # these alone
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/delay"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/report"
	"github.com/latchkey-go/latchkey/internal/bench/results"
	"github.com/latchkey-go/latchkey/internal/bench/servers"
	"github.com/latchkey-go/latchkey/internal/bench/waiters"
)

// scenarios in the order in which they run. Those that quick leaves out take
// long or have no ratio of their own.
var scenarios = []struct {
	scenario
	quick bool
}{
	{scenario{"pairs", pairs}, true},
	{scenario{"one processor", onOneProcessor}, false},
	{scenario{"delayed", delayed}, true},
	{scenario{"held", held}, true},
	{scenario{"holders", holders}, true},
	{scenario{"refusals", refusals}, true},
	{scenario{"connections", connections}, true},
	{scenario{"in-process", inProcess}, true},
	{scenario{"fleet", fleet}, false},
	{scenario{"requests", requests}, false},
	{scenario{"metrics", withMetrics}, false},
	{scenario{"stacks", stacks}, false},
	{scenario{"waiting", waiting}, false},
	{scenario{"hand-over", handOver}, false},
}

func main() {
	delay.Main()   // does not return in a proxy
	waiters.Main() // nor in a process that waits
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

// A command is what the flags say.
type command struct {
	plan   plan
	chosen []string // scenarios
}

func parse(args []string, stderr io.Writer) (c command, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&c.plan.quick, "quick", false, "print the main ratios in under a minute")
	only := flags.String("scenarios", "", "run these alone, separated by commas")
	flags.IntVar(&c.plan.rounds, "rounds", 0, "how often each is measured (5; quick: 2)")
	flags.DurationVar(&c.plan.measure, "measure", 0, "for how long each time (400ms; quick: 200ms)")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("what is %q? there are flags only", flags.Arg(0))
	}
	if c.chosen, err = choose(*only, c.plan.quick); err != nil {
		return c, err
	}
	rounds, measure := 5, 400*time.Millisecond
	if c.plan.quick {
		rounds, measure = 2, 200*time.Millisecond
	}
	if c.plan.rounds <= 0 {
		c.plan.rounds = rounds
	}
	if c.plan.measure <= 0 {
		c.plan.measure = measure
	}
	c.plan.warmUp = min(c.plan.measure/2, 400*time.Millisecond)
	return c, nil
}

// choose returns the names of the scenarios to run.
func choose(only string, quick bool) (names []string, err error) {
	var all []string
	for _, s := range scenarios {
		all = append(all, s.name)
		if only == "" && (s.quick || !quick) {
			names = append(names, s.name)
		}
	}
	if only == "" {
		return names, nil
	}
	for name := range strings.SplitSeq(only, ",") {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("no scenario is called %q; there are %s", name, strings.Join(all, ", "))
		}
		names = append(names, name)
	}
	return names, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if c.plan.quick {
		level = slog.LevelWarn
	}
	r, err := measure(ctx, c, slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})))
	if r == nil || ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return errors.Join(err, report.Print(stdout, r))
}

// measure runs the chosen scenarios on servers of its own. One that fails does
// not keep the others from being measured, so it may return results and an error.
func measure(ctx context.Context, c command, log *slog.Logger) (r *results.Results, err error) {
	r = &results.Results{Machine: machine(), Versions: moduleVersions(), Started: time.Now().UTC().Truncate(time.Second), Quick: c.plan.quick}
	s, err := servers.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r.Settings = s.Settings()
	maps.Copy(r.Versions, s.Versions())
	b := &bench{
		env:   locks.Env{Postgres: s.Postgres(), Redis: s.Redis()},
		usage: s.Usage, plan: c.plan, results: r, log: log,
	}
	start := time.Now()
	for _, s := range scenarios {
		if !slices.Contains(c.chosen, s.name) {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		if failed := s.run(ctx, b); failed != nil {
			log.Error("scenario failed", "scenario", s.name, "error", failed)
			err = errors.Join(err, failed)
		}
	}
	r.Took = time.Since(start).Truncate(time.Second)
	return r, err
}
