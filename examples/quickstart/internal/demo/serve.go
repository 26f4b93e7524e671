package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// serve prints what to try, and waits for a signal.
func serve(ctx context.Context, fleet *fleet, f flags, out io.Writer) error {
	name, err := fleet.database.name()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d instances of a service share one %s, each with one %s for all its locks. An export takes %v.\n"+
		"Send two requests from two terminals: the second is rejected, by either instance, over HTTP and gRPC.\n\n",
		len(fleet.instances), name, fleet.database.kind.session, f.export)
	for _, p := range fleet.instances {
		fmt.Fprintf(out, "instance %d\n", p.number)
		fmt.Fprintf(out, "  curl -i -X POST -H 'Authorization: Bearer alice-token' http://%s/exports\n", p.http)
		fmt.Fprintf(out, "  grpcurl -plaintext -H 'authorization: Bearer alice-token' %s latchkey.quickstart.v1.ExportService/Export\n", p.grpc)
	}
	fmt.Fprintf(out, "\nSee the locks in a browser. Each instance also has /metrics, /debug/vars and /readyz.\n")
	for _, p := range fleet.instances {
		fmt.Fprintf(out, "  http://%s/locks/\n", p.http)
	}
	if file := fleet.database.file(); file != "" {
		fmt.Fprintf(out, "\nThe command shows the locks, too.\n  latchkey ps --db sqlite:%s\n", file)
	}
	fmt.Fprintf(out, "\nbob-token is the token of another user. Press Ctrl-C to end, or kill %d.\n", os.Getpid())

	gone := make(chan struct{}, len(fleet.instances))
	for _, p := range fleet.instances {
		go func() { <-p.Ended(); gone <- struct{}{} }()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-gone:
		if ctx.Err() != nil { // where Ctrl-C reaches the instances, too
			return nil
		}
		return errors.New("an instance has ended")
	}
}
