// Command chaos runs the fault campaign. Processes that use latchkey work on a
// real database while faults of all kinds are injected. Everything that they saw
// is checked.
//
//	go run . -rows 1,2,3 -faults 5
//	go run . -duration 1h -seed 42 -out histories
//	go run . -stores all -duration 65m -mixed 4 -brisk 2
//	go run . -rows 2 -faults 8 -timeline ../../docs/freeze.svg  # make freeze
//	go run . -duration 1m -mixed 8   # readers, sets, limits and stacks, too
//	go run . -duration 1m -services 2 # watermarks, idempotency, election and the registry, too
//	go run . -check histories        # check the histories of an earlier campaign
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
	"runtime/debug"
	"syscall"

	"github.com/latchkey-go/latchkey/internal/chaos/campaign"
	"github.com/latchkey-go/latchkey/internal/chaos/starve"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// memoryLimit is for checking a history of millions of calls. The garbage
// collector works harder rather than take more.
const memoryLimit = 7 << 30

func main() {
	worker.Main() // does not return in a process under test
	starve.Main() // nor in a process that takes processor time
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
	w, err := parse(args, stderr)
	if err != nil {
		return err
	}
	plan := &w.plan
	plan.Progress = stderr
	temporary := plan.Fleet.Dir == ""
	if err := w.prepareDir(stdout); err != nil {
		return err
	}
	results, err := campaign.Each(ctx, *plan, w.stores, w.mode)
	fmt.Fprintf(stdout, "\n%v\n", results)
	if err == nil {
		err = w.publish(results)
	}
	if err == nil && temporary {
		return os.RemoveAll(plan.Fleet.Dir)
	}
	if err != nil {
		fmt.Fprintln(stdout, "the histories are in", plan.Fleet.Dir)
	}
	return err
}

// prepareDir finds a directory for the histories of a campaign.
func (w *options) prepareDir(stdout io.Writer) (err error) {
	if w.again {
		return nil
	}
	fmt.Fprintf(stdout, "seed %d\n", w.plan.Fleet.Seed)
	if w.plan.Fleet.Dir != "" {
		return takeEmpty(w.plan.Fleet.Dir)
	}
	w.plan.Fleet.Dir, err = os.MkdirTemp("", "latchkey-chaos-")
	return err
}

// publish writes the picture that was asked for, after a campaign without a
// violation.
func (w *options) publish(results campaign.Series) error {
	if w.timeline == "" {
		return nil
	}
	picture, err := results[0].Timeline()
	if err != nil {
		return err
	}
	return os.WriteFile(w.timeline, picture, 0o644)
}

// takeEmpty makes dir, or checks that it holds no history. The histories of two
// campaigns would contradict each other.
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
