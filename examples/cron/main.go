// Cron is scheduled jobs of which one instance of many runs each tick, on robfig/cron and on gocron.
//
//	go run .
//
// It starts four instances of itself whose clocks differ by seconds, on the PostgreSQL that DATABASE_URL names, else on
// a throwaway one, kills two of them in their work, and prints tick for tick who ran it, and who was refused and why.
//
// To take over: schedule.go, ticks.go, run.go, observer.go and driver_text.go, with robfig.go for robfig/cron, or
// gocron.go and elector.go for gocron. instance.go shows how they are used; all else is the show around it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// flags are the command line.
type flags struct {
	instance int
	demo     string
	skew     time.Duration
	length   time.Duration
}

func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("cron", flag.ContinueOnError)
	set.IntVar(&f.instance, "instance", 0, "be instance `n` (how it starts itself)")
	set.StringVar(&f.demo, "demonstration", "", "the `name` of the demonstration that it is in")
	set.DurationVar(&f.skew, "skew", 0, "how far the instance's clock is ahead")
	set.DurationVar(&f.length, "for", 9*time.Second, "how long the instances work, at the least")
	return f, set.Parse(args)
}

func main() {
	f, err := parseFlags(os.Args[1:])
	if err != nil {
		os.Exit(2) // flag has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, f, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags, out io.Writer) error {
	if f.instance > 0 {
		return runInstance(ctx, f, out)
	}
	return withDatabase(ctx, func(d *database) error { return demonstrate(ctx, d, f, out) })
}
