package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/campaign"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// options are what the flags ask for.
type options struct {
	plan     campaign.Plan
	stores   []fleet.Store
	mode     func(context.Context, campaign.Plan) (*campaign.Result, error)
	again    bool   // the histories are there already
	timeline string // a file; empty: none
}

// parse reads the flags.
func parse(args []string, stderr io.Writer) (w options, err error) {
	plan := &w.plan
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rows := flags.String("rows", "", "rows of the fault table, separated by commas (all)")
	flags.IntVar(&plan.Faults, "faults", 3, "how often each row's fault is injected, in a round")
	flags.DurationVar(&plan.Duration, "duration", 0, "go on with another round until then (one round); histories grow by about 0.7 GB an hour on disk, with brisk callers by several, and more in memory when they are checked")
	healthy := flags.Duration("healthy", 0, "no faults for so long: nothing may be reported lost")
	flags.IntVar(&plan.Hogs, "hogs", 0, "with -healthy: how many processors' worth of time to take away")
	flags.IntVar(&plan.Freezes, "freezes", 0, "freeze processes so often, several at a time, about as long as the lease")
	again := flags.String("check", "", "check the histories in this directory again, without a fleet; of a campaign that was killed with its -lease")
	flags.StringVar(&w.timeline, "timeline", "", "file for a picture of one freeze (SVG), if all was well")
	stores := flags.String("stores", string(fleet.Postgres), "where the locks are, separated by commas, or all; each has its share of the time: "+storeNames())
	flags.Uint64Var(&plan.Fleet.Seed, "seed", rand.Uint64(), "of all random choices")
	flags.StringVar(&plan.Fleet.Dir, "out", "", "directory for histories (a temporary one, removed when all is well)")
	flags.DurationVar(&plan.Fleet.Lease, "lease", 2*time.Second, "of each session")
	flags.IntVar(&plan.Fleet.Processes, "processes", 0, "under test (4; 8 with -freezes)")
	flags.IntVar(&plan.Fleet.Callers, "callers", 6, "in each process")
	flags.IntVar(&plan.Fleet.Mixed, "mixed", 0, "callers in each process beside them, of readers, sets, limits and stacks")
	flags.IntVar(&plan.Fleet.Services, "services", 0, "callers in each process beside them of each package around sqllock: watermarks, idempotency, election and the registry")
	flags.IntVar(&plan.Fleet.Brisk, "brisk", 0, "callers in each process beside them, which hold for a moment: most of the operations are theirs")
	flags.IntVar(&plan.Fleet.Keys, "keys", 16, "that they want")
	if err := flags.Parse(args); err != nil {
		return w, err
	}
	if flags.NArg() > 0 {
		return w, fmt.Errorf("what is %q? there are flags only", flags.Arg(0))
	}
	given := map[string]bool{}
	plan.Command = "go run ."
	flags.Visit(func(f *flag.Flag) {
		given[f.Name] = true
		if !slices.Contains([]string{"out", "seed"}, f.Name) {
			plan.Command += " -" + f.Name + " " + f.Value.String()
		}
	})
	plan.Command += fmt.Sprint(" -seed ", plan.Fleet.Seed)
	if err := w.choose(*healthy, given); err != nil {
		return w, err
	}
	if given["check"] {
		w.again, w.mode, plan.Fleet.Dir = true, campaign.Recheck, *again
	}
	if w.stores, err = storesOf(*stores); err != nil {
		return w, err
	}
	if len(w.stores) > 1 && w.timeline != "" {
		return w, errors.New("-timeline is of one store")
	}
	if saved := campaign.Saved(plan.Fleet.Dir); w.again && len(saved) > 0 {
		w.stores = saved
	}
	if plan.Faults < 1 || plan.Fleet.Processes < 1 || plan.Fleet.Callers < 1 || plan.Fleet.Mixed < 0 || plan.Fleet.Brisk < 0 || plan.Fleet.Services < 0 || plan.Fleet.Keys < 1 {
		return w, errors.New("faults, processes, callers and keys must be positive, and mixed, brisk and services not negative")
	}
	plan.Rows, err = numbers(*rows)
	return w, err
}

// fresh is the flags of a campaign that is yet to be.
var fresh = []string{"rows", "faults", "duration", "healthy", "hogs", "freezes", "seed", "out", "processes", "callers", "mixed", "brisk", "services", "keys", "stores"}

// choose sets the mode, and what follows from it. given is which flags there
// are.
func (w *options) choose(healthy time.Duration, given map[string]bool) error {
	processes := 4
	switch {
	case given["check"] && slices.ContainsFunc(fresh, func(name string) bool { return given[name] }):
		return fmt.Errorf("-check does not go with -%s", strings.Join(fresh, ", -"))
	case given["healthy"] && given["freezes"]:
		return errors.New("-healthy and -freezes are two campaigns")
	case (given["healthy"] || given["freezes"]) && (given["rows"] || given["faults"] || given["duration"]):
		return errors.New("-rows, -faults and -duration do not go with -healthy or -freezes")
	case given["hogs"] && (!given["healthy"] || w.plan.Hogs < 1):
		return errors.New("-hogs goes with -healthy, and is positive")
	case given["healthy"] && given["timeline"]:
		return errors.New("without faults there is nothing for -timeline")
	case given["healthy"]:
		if healthy <= 0 {
			return errors.New("-healthy must be positive")
		}
		w.mode, w.plan.Duration = campaign.Healthy, healthy
	case given["freezes"]:
		if w.plan.Freezes <= 0 {
			return errors.New("-freezes must be positive")
		}
		w.mode, processes = campaign.Freezes, 8
	default:
		w.mode = campaign.Run
	}
	if !given["processes"] {
		w.plan.Fleet.Processes = processes
	}
	return nil
}

// numbers reads a list of them; none is nil.
func numbers(list string) (all []int, err error) {
	if list == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("-rows: %w", err)
		}
		all = append(all, n)
	}
	return all, nil
}

// storeNames returns the names of all stores.
func storeNames() string {
	var names []string
	for _, store := range fleet.Stores() {
		names = append(names, string(store))
	}
	return strings.Join(names, ", ")
}

// storesOf reads a list of stores.
func storesOf(list string) (stores []fleet.Store, err error) {
	if list == "all" {
		return fleet.Stores(), nil
	}
	for name := range strings.SplitSeq(list, ",") {
		store := fleet.Store(strings.TrimSpace(name))
		if err := store.Known(); err != nil {
			return nil, err
		}
		stores = append(stores, store)
	}
	return stores, nil
}
