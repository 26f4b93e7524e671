// Package demo puts the queue to the test: processes work on jobs while some of
// them are killed and the database goes away. Then it counts what became of the
// jobs.
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
	"time"

	"github.com/latchkey-go/latchkey/examples/jobqueue/queue"
)

// ways are the two, by their names on the command line.
var ways = map[string]func(*queue.Queue, queue.Locks) queue.Way{
	Advisory: queue.AdvisoryLock,
	Skip:     queue.SkipLocked,
}

// Main runs the demonstration. It starts this program again for each worker,
// and calls run there. The database is the one that DATABASE_URL names, in a
// schema of its own that is dropped at the end, or a throwaway PostgreSQL.
func Main(run func(context.Context, *Worker) error) {
	WorkerMain(run)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := Run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "jobqueue:", err)
		os.Exit(1)
	}
}

// Flags are the command line.
type Flags struct {
	bench   bool
	way     string
	jobs    int
	kills   int
	outage  time.Duration
	atOnce  int
	seed    uint64
	verbose bool
	lease   time.Duration
}

const processes = 4

// ParseFlags parses the command line.
func ParseFlags(args []string) (Flags, error) {
	var f Flags
	set := flag.NewFlagSet("jobqueue", flag.ContinueOnError)
	set.BoolVar(&f.bench, "bench", false, "measure both ways at 1, 8 and 64 workers")
	set.StringVar(&f.way, "way", "both", "advisory, skip or both")
	set.IntVar(&f.jobs, "jobs", 600, "how many jobs")
	set.IntVar(&f.kills, "kills", 6, "how many workers to kill -9")
	set.DurationVar(&f.outage, "outage", 2*time.Second, "how long the throwaway database is away in the middle (0: not)")
	set.IntVar(&f.atOnce, "workers", 8, "jobs at a time in each process")
	set.Uint64Var(&f.seed, "seed", uint64(time.Now().UnixNano()), "of random choices")
	set.BoolVar(&f.verbose, "v", false, "let the workers log what happens to them")
	set.DurationVar(&f.lease, "lease", 5*time.Second, "after how long a frozen worker loses its locks")
	if err := set.Parse(args); err != nil {
		return Flags{}, err
	}
	switch {
	case set.NArg() > 0:
		return Flags{}, errors.New("it takes flags only")
	case f.way != "both" && ways[f.way] == nil:
		return Flags{}, errors.New("the way is advisory, skip or both")
	case f.jobs < 1 || f.kills < 0 || f.atOnce < 1 || f.outage < 0:
		return Flags{}, errors.New("jobs and workers must be positive, kills and outage not negative")
	}
	return f, nil
}

// Run runs the demonstration with a command line.
func Run(ctx context.Context, args []string, out io.Writer) (err error) {
	f, err := ParseFlags(args)
	if err != nil {
		return err
	}
	p, err := OpenPlace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if f.bench {
		return bench(ctx, p, out)
	}
	for _, way := range []string{Advisory, Skip} {
		if f.way != "both" && f.way != way {
			continue
		}
		account, err := Try(ctx, p, way, f, out)
		if err == nil {
			err = account.Report(out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
	return nil
}
