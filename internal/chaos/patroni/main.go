//go:build linux

// Command patroni runs a campaign of failovers: processes that use latchkey work
// on a PostgreSQL cluster under Patroni, etcd and HAProxy, while nodes are
// killed and cut off. Everything that they saw is checked.
//
//	go run ./patroni -each 20
//	go run ./patroni -each 3 -rows 4,5 -lease 30s
//
// It needs root on Linux and Debian's packages of the programs; it says which
// are missing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/sandbox"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

func main() {
	network.Enter()         // does not return in a process that belongs to another host
	worker.Main()           // nor in a process under test
	sandbox.Main(round.Run) // nor in a sandbox
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "patroni:", err)
		os.Exit(1)
	}
}

// options are what the flags ask for.
type options struct {
	each    int   // faults of each kind
	rows    []int // kinds
	seed    uint64
	lease   time.Duration
	command string // that makes the same faults again
}

// parse reads the flags.
func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("patroni", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.each, "each", 3, "how often each kind of fault is injected")
	flags.Func("rows", "kinds of faults, by their numbers, separated by commas (all)", func(list string) error {
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || !slices.ContainsFunc(round.Kinds, func(k round.Kind) bool { return k.Number == n }) {
				return errors.New("there is no such kind")
			}
			o.rows = append(o.rows, n)
		}
		return nil
	})
	flags.Uint64Var(&o.seed, "seed", rand.Uint64(), "of all random choices (a random one)")
	flags.DurationVar(&o.lease, "lease", 10*time.Second, "of each Session")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if len(o.rows) == 0 {
		for _, k := range round.Kinds {
			o.rows = append(o.rows, k.Number)
		}
	}
	o.command = "go run ./patroni"
	flags.Visit(func(f *flag.Flag) {
		if f.Name != "seed" && f.Name != "rows" {
			o.command += fmt.Sprintf(" -%s=%v", f.Name, f.Value)
		}
	})
	o.command += fmt.Sprintf(" -rows=%s -seed=%d", strings.Trim(strings.ReplaceAll(fmt.Sprint(o.rows), " ", ","), "[]"), o.seed)
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("what is %q? there are flags only", flags.Arg(0))
	case o.each < 1 || o.lease <= 0:
		err = errors.New("-each and -lease must be positive")
	}
	return o, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := cluster.Check(); err != nil {
		return err
	}
	fmt.Fprintln(stderr, o.command)
	results, err := o.rounds(ctx, func(orders round.Orders) (*round.Result, error) { return inSandbox(ctx, orders) })
	if len(results) > 0 {
		fmt.Fprintf(stdout, "\n%s\n", o.markdown(results))
	}
	return errors.Join(err, violations(results))
}

// perRound is how many faults a cluster meets before it is made anew, and the
// histories are checked.
const perRound = 16

// rounds carries out rounds until each fault has been injected. The faults of a
// round that fails or gets stuck come again. A cluster that does not become whole
// is no fault of the kit, so a few rounds may: one, and one for each fifty faults.
func (o *options) rounds(ctx context.Context, do func(round.Orders) (*round.Result, error)) (results []*round.Result, err error) {
	rng := rand.New(rand.NewPCG(o.seed, 0))
	var left []int
	for range o.each {
		left = append(left, o.rows...)
	}
	rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	mayFail := 1 + len(left)/50
	for index := 1; len(left) > 0; index++ {
		rows := left[:min(perRound, len(left))]
		left = left[len(rows):]
		result, err := do(round.Orders{Index: index, Seed: o.seed, Rows: rows, Lease: o.lease})
		if ctx.Err() != nil {
			return results, context.Cause(ctx)
		}
		if err == nil {
			results = append(results, result)
			if why := result.Stuck; why != "" {
				err = fmt.Errorf("round %d was stuck: %s; its histories are in %s", index, why, result.Kept)
			}
		}
		if err != nil {
			left = append(left, rows...)
			if mayFail--; mayFail < 0 {
				return results, err
			}
		}
	}
	return results, nil
}

// inSandbox runs one round in a sandbox.
func inSandbox(ctx context.Context, orders round.Orders) (*round.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, orders.Limit())
	defer cancel()
	output, err := sandbox.Run(ctx, orders)
	if err != nil {
		return nil, fmt.Errorf("round %d failed: %w", orders.Index, err)
	}
	result := &round.Result{}
	return result, json.Unmarshal(output, result)
}

// violations returns what was promised and did not hold.
func violations(results []*round.Result) error {
	var errs []error
	for _, r := range results {
		for _, v := range r.Violations {
			errs = append(errs, fmt.Errorf("violated: %s; the histories are in %s", v, r.Kept))
		}
	}
	return errors.Join(errs...)
}
