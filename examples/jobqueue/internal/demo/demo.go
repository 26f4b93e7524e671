// Jobqueue runs a queue of jobs in PostgreSQL two ways, and shows that each job is done
// exactly once although workers are killed and the database goes away.
//
//	go run .                                  # both ways: a few hundred jobs, kills, an outage; 20 s
//	go run . -jobs 10000 -kills 20 -outage 10s
//	go run . -bench                           # jobs/s of both ways, by workers; a minute
//
// Workers are processes of their own, on the database that DATABASE_URL names (in a schema of
// its own, dropped at the end), else on a throwaway PostgreSQL. The queue is in the
// folder queue; all else is the show around it.
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
	bench   bool
	way     string
	jobs    int
	kills   int
	outage  time.Duration
	workers int
	seed    uint64
	verbose bool

	worker string // how it starts itself: the way
	schema string
	lease  time.Duration
}

const processes = 4

func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("jobqueue", flag.ContinueOnError)
	set.BoolVar(&f.bench, "bench", false, "measure both ways at 1, 8 and 64 workers")
	set.StringVar(&f.way, "way", "both", "advisory, skip or both")
	set.IntVar(&f.jobs, "jobs", 600, "how many jobs")
	set.IntVar(&f.kills, "kills", 6, "how many workers to kill -9")
	set.DurationVar(&f.outage, "outage", 2*time.Second, "how long the throwaway database is away in the midst of it (0: not)")
	set.IntVar(&f.workers, "workers", 8, "jobs at a time in each process")
	set.Uint64Var(&f.seed, "seed", uint64(time.Now().UnixNano()), "of what is random")
	set.BoolVar(&f.verbose, "v", false, "have the workers log what happens to them")
	set.StringVar(&f.worker, "worker", "", "be a worker, one `way` (how it starts itself)")
	set.StringVar(&f.schema, "schema", "", "of a worker")
	set.DurationVar(&f.lease, "lease", 5*time.Second, "after how long a frozen worker loses its locks")
	if err := set.Parse(args); err != nil {
		return flags{}, err
	}
	switch {
	case f.way != "both" && ways[f.way] == nil, f.worker != "" && ways[f.worker] == nil:
		return flags{}, errors.New("the way is advisory, skip or both")
	case f.jobs < 1 || f.kills < 0 || f.workers < 1 || f.outage < 0:
		return flags{}, errors.New("jobs and workers must be positive, kills and outage not negative")
	}
	return f, nil
}

func main() {
	f, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "jobqueue:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, f, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "jobqueue:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags, out io.Writer) (err error) {
	if f.worker != "" {
		return runWorker(ctx, f, os.Stdin, out)
	}
	p, err := openPlace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if f.bench {
		return bench(ctx, p, out)
	}
	for _, way := range []string{"advisory", "skip"} {
		if f.way != "both" && f.way != way {
			continue
		}
		account, err := try(ctx, p, way, f, out)
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
		if err := account.report(out); err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	return nil
}
