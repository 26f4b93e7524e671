package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// demonstrate sends load to the fleet, and prints what became of it. It fails if
// a user had two exports at once.
func demonstrate(ctx context.Context, fleet *fleet, f flags, out io.Writer) error {
	instances := fleet.instances
	name, err := fleet.database.name()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d instances of one service, each a process, on one %s. Each of %d users keeps asking both instances,\n"+
		"over HTTP and gRPC at once, for an export that takes %v. A user may have one at a time; the rest is refused.\n"+
		"This takes %v …\n\n", len(instances), name, len(users), f.export, f.load)

	stopWatching := fleet.database.watchSessions()
	tally, err := sendLoad(ctx, instances, f.load)
	sessions, watchErr := stopWatching()
	if err := errors.Join(err, watchErr, fleet.stop()); err != nil { // their reports are complete after that
		return err
	}
	var exports []export
	for _, p := range instances {
		exports = append(exports, p.exports...)
	}
	if err := printTable(out, tally, instances); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe database saw %d %ss of latchkey at the most, for %d instances: one holds all locks of a process.\n",
		sessions, fleet.database.kind.session, len(instances))
	return printVerdict(out, exports)
}

func printTable(out io.Writer, tally *tally, instances []*process) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "USER\tINSTANCE\tADMITTED\tREFUSED")
	var sum count
	for _, user := range users {
		for _, p := range instances {
			c := tally.counts[tallyKey{user, p.number}]
			sum.admitted += c.admitted
			sum.refused += c.refused
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", user, p.number, c.admitted, c.refused)
		}
	}
	fmt.Fprintf(table, "all\t\t%d\t%d\n", sum.admitted, sum.refused)
	return table.Flush()
}

func printVerdict(out io.Writer, exports []export) error {
	found := overlaps(exports)
	fmt.Fprintf(out, "%d exports ran; %d times a user's next one ran on the other instance. Going by the times at which the\n"+
		"instances worked, %d overlapped another of the same user.\n", len(exports), changes(exports), len(found))
	switch {
	case len(found) > 0:
		return errors.New("a user had two exports at once")
	case len(exports) == 0:
		return errors.New("no export was admitted")
	}
	fmt.Fprintln(out, "OK: one at a time for each user, across both instances.")
	return nil
}
