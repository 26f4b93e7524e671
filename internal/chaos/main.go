// Command chaos runs the fault campaign: processes of the kit at work on a real
// PostgreSQL, faults of all kinds, and a check of everything that they saw.
//
//	go run . -rows 1,2,3 -faults 5
//	go run . -duration 1h -seed 42 -out histories
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/campaign"
	"github.com/latchkey-go/latchkey/internal/chaos/starve"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

func main() {
	worker.Main() // does not return in a process under test
	starve.Main() // nor in one that takes the processor from it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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

// parse is the plan that the flags make.
func parse(args []string, stderr io.Writer) (plan campaign.Plan, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rows := flags.String("rows", "", "rows of the fault table, separated by commas (all)")
	flags.IntVar(&plan.Faults, "faults", 3, "how often each row's fault is injected, in a round")
	flags.DurationVar(&plan.Duration, "duration", 0, "go on with another round until then (one round)")
	flags.Uint64Var(&plan.Fleet.Seed, "seed", rand.Uint64(), "of all random choices")
	flags.StringVar(&plan.Fleet.Dir, "out", "", "directory for histories (a temporary one, removed when all is well)")
	flags.DurationVar(&plan.Fleet.Lease, "lease", 2*time.Second, "of each session")
	flags.IntVar(&plan.Fleet.Processes, "processes", 4, "under test")
	flags.IntVar(&plan.Fleet.Callers, "callers", 6, "in each process")
	flags.IntVar(&plan.Fleet.Keys, "keys", 16, "that they want")
	if err := flags.Parse(args); err != nil {
		return plan, err
	}
	if flags.NArg() > 0 {
		return plan, fmt.Errorf("what is %q? there are flags only", flags.Arg(0))
	}
	if plan.Faults < 1 || plan.Fleet.Processes < 1 || plan.Fleet.Callers < 1 || plan.Fleet.Keys < 1 {
		return plan, errors.New("faults, processes, callers and keys must be positive")
	}
	if *rows == "" {
		return plan, nil
	}
	for text := range strings.SplitSeq(*rows, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return plan, fmt.Errorf("-rows: %w", err)
		}
		plan.Rows = append(plan.Rows, n)
	}
	return plan, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	plan, err := parse(args, stderr)
	if err != nil {
		return err
	}
	plan.Progress = stderr
	temporary := plan.Fleet.Dir == ""
	if temporary {
		if plan.Fleet.Dir, err = os.MkdirTemp("", "latchkey-chaos-"); err != nil {
			return err
		}
	} else if err := takeEmpty(plan.Fleet.Dir); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "seed %d\n", plan.Fleet.Seed)
	result, err := campaign.Run(ctx, plan)
	if result != nil {
		fmt.Fprintf(stdout, "\n%v\n", result)
	}
	if err == nil && temporary {
		return os.RemoveAll(plan.Fleet.Dir)
	}
	if err != nil {
		fmt.Fprintln(stdout, "the histories are in", plan.Fleet.Dir)
	}
	return err
}

// takeEmpty makes dir, or checks that no history is in it: two campaigns in one
// would contradict each other.
func takeEmpty(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err == nil && len(old) > 0 {
		err = fmt.Errorf("there are histories in %s already", dir)
	}
	return err
}
