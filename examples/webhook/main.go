// Webhook receives webhooks, each of which takes effect exactly once, however often
// and to however many processes it is delivered, and whoever is killed meanwhile.
//
//	go run .             # duplicates in flight are refused: 409
//	go run . -wait 2s    # duplicates in flight wait for the first one's answer
//	go run . -migrate    # only make the tables in DATABASE_URL's database
//
// It starts two receivers as processes of their own, and a sender that delivers each
// event several times to all of them. One receiver kills itself in the middle of an
// effect, the other between COMMIT and answer. At the end the accounts must tally.
// The database is the PostgreSQL that DATABASE_URL names, else a throwaway one. The
// recipe is in receiver.go, signature.go, once.go and schema.go; all else is the show
// around it.
package main

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
)

// flags are the command line.
type flags struct {
	receiver bool
	migrate  bool
	wait     time.Duration
	work     time.Duration
	events   int
	patience time.Duration
}

func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("webhook", flag.ContinueOnError)
	set.BoolVar(&f.receiver, "receiver", false, "be a receiver (how it starts itself)")
	set.BoolVar(&f.migrate, "migrate", false, "make the tables and end")
	set.DurationVar(&f.wait, "wait", 0, "how long a duplicate waits for the one in flight (0: it is refused)")
	set.DurationVar(&f.work, "work", 10*time.Millisecond, "how long an effect takes")
	set.IntVar(&f.events, "events", 200, "how many events to send")
	set.DurationVar(&f.patience, "patience", 2*time.Minute, "how long to go on delivering")
	if err := set.Parse(args); err != nil {
		return flags{}, err
	}
	if f.events <= 0 || f.wait < 0 || f.patience <= 0 {
		return flags{}, errors.New("-events and -patience must be positive, -wait not negative")
	}
	return f, nil
}

func main() {
	f, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err == nil {
		err = run(ctx, f, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags, out io.Writer) error {
	switch {
	case f.receiver:
		return runReceiver(ctx, f)
	case f.migrate:
		return withDatabase(func(url string) error { return migrate(ctx, url) })
	default:
		return withDatabase(func(url string) error { return demonstrate(ctx, f, url, out) })
	}
}
