// Demo is `make demo`. It starts two instances of the quickstart, sends them
// requests for a while, and prints which were admitted. Then it compares the
// times of all exports: no two of a user may overlap.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/fleet"
)

const (
	size  = 2                      // instances
	takes = 250 * time.Millisecond // an export
)

func main() {
	length := flag.Duration("load", 3*time.Second, "how long to send requests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := inTempDir(func(dir string) error { return demonstrate(ctx, dir, *length, os.Stdout) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// inTempDir calls do with a directory that it removes afterwards.
func inTempDir(do func(dir string) error) error {
	dir, err := os.MkdirTemp("", "latchkey-demo-")
	if err != nil {
		return err
	}
	return errors.Join(do(dir), os.RemoveAll(dir))
}

// demonstrate runs the quickstart on the database that DATABASE_URL names, or on
// a SQLite file in dir.
func demonstrate(ctx context.Context, dir string, length time.Duration, out io.Writer) (err error) {
	program, err := fleet.Build(ctx, "github.com/latchkey-go/latchkey/examples/quickstart", filepath.Join(dir, "quickstart.exe"))
	if err != nil {
		return errors.New("the quickstart does not compile")
	}
	url, database := os.Getenv("DATABASE_URL"), "database, which DATABASE_URL names"
	if url == "" {
		url, database = "sqlite:"+filepath.ToSlash(filepath.Join(dir, "locks.db")), "SQLite file"
	}
	f := &fleet.Fleet{Program: program, Env: []string{"DATABASE_URL=" + url}}
	defer func() { err = errors.Join(err, f.Stop()) }()
	for range size {
		if _, err := f.Start("-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-takes", takes.String()); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d instances of a service, each a process, share one %s. For %v, each of %d users sends\n"+
		"requests to both instances, over HTTP and gRPC at once. Each request is for an export that takes %v.\n"+
		"A user may have one export at a time. Other requests of the same user are rejected.\n\n",
		size, database, length, len(users), takes)
	l, err := sendLoad(ctx, f.Running(), length)
	if err != nil {
		return err
	}
	return report(out, l)
}

// report prints what became of the requests. It fails if a user had two exports at
// once.
func report(out io.Writer, l *load) error {
	rows := [][]string{{"USER", "INSTANCE", "ADMITTED", "REJECTED"}}
	rejected := 0
	for _, user := range users {
		for n := 1; n <= size; n++ {
			admitted := 0
			for _, w := range l.works {
				if w.Key == user && w.Instance == n {
					admitted++
				}
			}
			rejected += l.rejected[sender{user, n}]
			rows = append(rows, []string{user, strconv.Itoa(n), strconv.Itoa(admitted), strconv.Itoa(l.rejected[sender{user, n}])})
		}
	}
	rows = append(rows, []string{"all", "", strconv.Itoa(len(l.works)), strconv.Itoa(rejected)})
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	_ = table.Flush() // an error of standard output shows nowhere else
	overlaps := fleet.Overlaps(l.works)
	fmt.Fprintf(out, "\nADMITTED  responses 200 (gRPC: OK)\n"+
		"REJECTED  responses 429 with Retry-After (gRPC: RESOURCE_EXHAUSTED): the user had an export on one of the instances\n\n"+
		"The instances had at most %d connections for locks: one carries all locks of a process.\n"+
		"%d exports ran. %d times the next export of a user ran on the other instance.\n"+
		"By the times in the responses, %d exports overlapped another of the same user.\n",
		l.connections, len(l.works), fleet.Changes(l.works), overlaps)
	switch {
	case overlaps > 0:
		return errors.New("a user had two exports at once")
	case len(l.works) == 0:
		return errors.New("no export was admitted")
	}
	fmt.Fprint(out, "OK: one at a time for each user, across both instances.\n\n"+
		"To send requests of your own, and to see the locks in a browser: (cd examples/quickstart && go run .)\n")
	return nil
}
