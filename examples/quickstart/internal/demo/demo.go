// Package demo starts two instances of a service as processes, and sends
// requests to both. It checks by the times of the exports that no two of a user
// overlapped.
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
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// flags are the command line.
type flags struct {
	serve  bool
	load   time.Duration
	export time.Duration
}

func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	set.BoolVar(&f.serve, "serve", false, "stay up, and print what to try")
	set.DurationVar(&f.load, "load", 3*time.Second, "how long to send requests")
	set.DurationVar(&f.export, "export", 0, "how long an export takes (0: 250ms, with -serve 5s)")
	if err := set.Parse(args); err != nil {
		return flags{}, err // flag has printed the reason
	}
	if set.NArg() > 0 {
		err := errors.New("quickstart: it takes flags only")
		fmt.Fprintln(set.Output(), err)
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

// Main runs the demonstration. It starts this program again for each instance,
// and calls run there. The limit has a namespace.
func Main(namespace string, run func(context.Context, *Instance) error) {
	subprocess.Main(role, run)
	f, err := parseFlags(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2) // the reason is printed
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = withFleet(ctx, namespace, f, func(fleet *fleet) error {
		if f.serve {
			return serve(ctx, fleet, f, os.Stdout)
		}
		return demonstrate(ctx, fleet, f, os.Stdout)
	})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// demonstrate sends requests to the fleet, and prints the responses. It fails if a
// user had two exports at once.
func demonstrate(ctx context.Context, fleet *fleet, f flags, out io.Writer) error {
	instances := fleet.instances
	name, err := fleet.database.name()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d instances of a service, each a process, share one %s. For %v, each of %d users sends\n"+
		"requests to both instances, over HTTP and gRPC at once. Each request is for an export that takes %v.\n"+
		"A user may have one export at a time. Other requests of the same user are rejected.\n\n",
		len(instances), name, f.load, len(users), f.export)

	stopWatching := fleet.database.watchSessions()
	tally, err := sendLoad(ctx, instances, f.load)
	sessions, watchErr := stopWatching()
	if err := errors.Join(err, watchErr, fleet.stop()); err != nil { // after this the exports are complete
		return err
	}
	var exports []export
	for _, i := range instances {
		exports = append(exports, i.exports...)
	}
	if err := printTable(out, tally, instances); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nADMITTED  responses 200 (gRPC: OK)\n"+
		"REJECTED  responses 429 with Retry-After (gRPC: RESOURCE_EXHAUSTED): the user had an export on one of the instances\n\n"+
		"The database had at most %d %ss of latchkey, for %d instances: one carries all locks of a process.\n",
		sessions, fleet.database.kind.session, len(instances))
	return printResult(out, exports)
}

func printTable(out io.Writer, tally *tally, instances []*instance) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "USER\tINSTANCE\tADMITTED\tREJECTED")
	var sum count
	for _, user := range users {
		for _, i := range instances {
			c := tally.counts[tallyKey{user, i.number}]
			sum.admitted += c.admitted
			sum.rejected += c.rejected
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", user, i.number, c.admitted, c.rejected)
		}
	}
	fmt.Fprintf(table, "all\t\t%d\t%d\n", sum.admitted, sum.rejected)
	return table.Flush()
}

func printResult(out io.Writer, exports []export) error {
	found := overlaps(exports)
	fmt.Fprintf(out, "%d exports ran. %d times the next export of a user ran on the other instance.\n"+
		"By the times that the instances logged, %d exports overlapped another of the same user.\n", len(exports), changes(exports), len(found))
	switch {
	case len(found) > 0:
		return errors.New("a user had two exports at once")
	case len(exports) == 0:
		return errors.New("no export was admitted")
	}
	fmt.Fprintf(out, "OK: one at a time for each user, across both instances.\n\n"+
		"To send requests of your own, and to see the locks in a browser: (cd examples/quickstart && go run . -serve)\n")
	return nil
}
