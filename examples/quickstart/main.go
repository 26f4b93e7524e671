// Quickstart is a service with a slow export, one at a time for each user,
// across all its instances: over HTTP and over gRPC.
//
//	go run .          # two instances, some load, a table
//	go run . -serve   # two instances to try with curl and grpcurl
//
// It starts two instances of itself as processes of their own. The locks are in
// the database that DATABASE_URL names (postgres://… or mysql://…, for MariaDB
// too), else in a throwaway SQLite file. The service is in instance.go, driver.go,
// auth.go and export.go; all else is the show around it.
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
	serve    bool
	instance int
	load     time.Duration
	export   time.Duration
}

func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	set.BoolVar(&f.serve, "serve", false, "stay up, and print what to try")
	set.IntVar(&f.instance, "instance", 0, "be instance `n` of the service (how it starts itself)")
	set.DurationVar(&f.load, "load", 3*time.Second, "how long to send requests")
	set.DurationVar(&f.export, "export", 0, "how long an export takes (0: 250ms, with -serve 5s)")
	if err := set.Parse(args); err != nil {
		return flags{}, err
	}
	if f.export == 0 {
		f.export = 250 * time.Millisecond
		if f.serve {
			f.export = 5 * time.Second
		}
	}
	return f, nil
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
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags, out io.Writer) error {
	switch {
	case f.instance > 0:
		return runInstance(ctx, f)
	case f.serve:
		return withFleet(ctx, f, func(fleet *fleet) error { return serve(ctx, fleet, out) })
	default:
		return withFleet(ctx, f, func(fleet *fleet) error { return demonstrate(ctx, fleet, f, out) })
	}
}
