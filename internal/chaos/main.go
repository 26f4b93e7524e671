// Command chaos runs the fault campaign. Processes that use latchkey work on a
// real database while faults of all kinds are injected. Everything that they saw
// is checked.
//
//	go run . -rows 1,2,3 -faults 5
//	go run . -duration 1h -seed 42 -out histories
//	go run . -stores all -duration 65m
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/campaign"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/older"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// memoryLimit is for checking a history of millions of calls. The garbage
// collector works harder rather than take more.
const memoryLimit = 7 << 30

func main() {
	worker.Main() // does not return in a process under test
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the history so far is checked; a second interrupt ends that at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	plan, stores, err := parse(args, stderr)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "seed %d\n", plan.Fleet.Seed)
	plan.Progress = stdout
	temporary := plan.Fleet.Dir == ""
	if temporary {
		if plan.Fleet.Dir, err = os.MkdirTemp("", "latchkey-chaos-"); err != nil {
			return err
		}
	} else if old, err := filepath.Glob(filepath.Join(plan.Fleet.Dir, "*", "*.jsonl")); err != nil || len(old) > 0 {
		return errors.Join(err, fmt.Errorf("there are histories in %s already", plan.Fleet.Dir)) // they would contradict each other
	}
	err = campaign.Each(ctx, plan, stores)
	if err == nil && temporary {
		return os.RemoveAll(plan.Fleet.Dir)
	}
	if err != nil {
		fmt.Fprintln(stdout, "the histories are in", plan.Fleet.Dir)
	}
	return err
}

// parse reads the flags.
func parse(args []string, stderr io.Writer) (plan campaign.Plan, stores []fleet.Store, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rows := flags.String("rows", "", "rows of the fault table, separated by commas (all)")
	flags.IntVar(&plan.Faults, "faults", 3, "how often each row's fault is injected, in a round")
	flags.DurationVar(&plan.Duration, "duration", 0, "go on with another round until then (one round); histories grow by some GB an hour on disk, and more in memory when they are checked")
	names := flags.String("stores", string(fleet.Postgres), fmt.Sprint("where the locks are, separated by commas, or all; each has its share of the time: ", fleet.Stores()))
	flags.StringVar(&plan.Old, "old", "", "half of the processes run the kit of this revision; last is the last release")
	flags.IntVar(&plan.Least.Operations, "least-operations", 0, "a campaign fails with fewer")
	flags.IntVar(&plan.Least.Faults, "least-faults", 0, "a campaign fails with fewer")
	flags.DurationVar(&plan.Busy, "busy", 0, "is added to each bound on time, on a machine with other work")
	set := &plan.Fleet
	flags.Uint64Var(&set.Seed, "seed", rand.Uint64(), "of all random choices")
	flags.StringVar(&set.Dir, "out", "", "directory for histories, one for each store (a temporary one, removed when all is well)")
	flags.DurationVar(&set.Lease, "lease", 2*time.Second, "of each session")
	flags.IntVar(&set.Processes, "processes", 4, "under test")
	flags.IntVar(&set.Callers, "callers", 8, "in each process")
	flags.IntVar(&set.Mixed, "mixed", 4, "callers in each process beside them, of readers, sets, limits and stacks")
	flags.IntVar(&set.Keys, "keys", 24, "that they want")
	if err := flags.Parse(args); err != nil {
		return plan, nil, err
	}
	if plan.Old == "last" {
		plan.Old = older.Last(context.Background())
	}
	plan.Command = "go run ."
	flags.Visit(func(f *flag.Flag) {
		if f.Name != "out" && f.Name != "seed" {
			plan.Command += " -" + f.Name + " " + f.Value.String()
		}
	})
	plan.Command += fmt.Sprint(" -seed ", set.Seed)
	if stores = fleet.Stores(); *names != "all" {
		stores = nil
		for name := range strings.SplitSeq(*names, ",") {
			stores = append(stores, fleet.Store(name))
			err = errors.Join(err, fleet.Store(name).Known())
		}
	}
	for text := range strings.SplitSeq(*rows, ",") {
		if n, failed := strconv.Atoi(text); failed == nil {
			plan.Rows = append(plan.Rows, n)
		} else if *rows != "" {
			err = errors.Join(err, fmt.Errorf("-rows: %w", failed))
		}
	}
	if flags.NArg() > 0 || min(plan.Faults, set.Processes, set.Callers, set.Keys) < 1 || set.Mixed < 0 {
		err = errors.Join(err, errors.New("there are flags only; faults, processes, callers and keys are positive, and mixed is not negative"))
	}
	return plan, stores, err
}
