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
	again := flags.String("check", "", "check the histories in this directory again, without a fleet; of a campaign that was killed with its -lease")
	flags.StringVar(&w.timeline, "timeline", "", "file for a picture of one freeze (SVG), if all was well")
	stores := flags.String("stores", string(fleet.Postgres), "where the locks are, separated by commas, or all; each has its share of the time: "+storeNames())
	flags.Uint64Var(&plan.Fleet.Seed, "seed", rand.Uint64(), "of all random choices")
	flags.StringVar(&plan.Fleet.Dir, "out", "", "directory for histories (a temporary one, removed when all is well)")
	flags.DurationVar(&plan.Fleet.Lease, "lease", 2*time.Second, "of each session")
	flags.IntVar(&plan.Fleet.Processes, "processes", 4, "under test")
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
	w.mode = campaign.Run
	if given["check"] {
		if slices.ContainsFunc(fresh, func(name string) bool { return given[name] }) {
			return w, fmt.Errorf("-check does not go with -%s", strings.Join(fresh, ", -"))
		}
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
var fresh = []string{"rows", "faults", "duration", "seed", "out", "processes", "callers", "mixed", "brisk", "services", "keys", "stores"}

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
