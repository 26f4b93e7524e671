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
	fmt.Fprintf(out, "%d instances of one service, each a process, one PostgreSQL. %d users ask both, over HTTP and gRPC at once,\n"+
		"for an export that takes %v; one at a time is allowed to each user. For %v …\n\n", len(instances), len(users), f.export, f.load)

	stopWatching := fleet.database.watchConnections()
	tally, err := sendLoad(ctx, instances, f.load)
	connections, watchErr := stopWatching()
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
	return printVerdict(out, exports, connections, len(instances))
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

func printVerdict(out io.Writer, exports []export, connections, instances int) error {
	fmt.Fprintf(out, "\nThe database saw %d connections of latchkey at the most, for %d instances: one holds all locks of a process.\n", connections, instances)
	found := overlaps(exports)
	fmt.Fprintf(out, "Of %d exports, by when the instances worked, %d overlapped another of the same user; %d times a user's next\n"+
		"one ran on the other instance.\n", len(exports), len(found), changes(exports))
	switch {
	case len(found) > 0:
		return errors.New("a user had two exports at once")
	case len(exports) == 0:
		return errors.New("no export was admitted")
	}
	return nil
}
