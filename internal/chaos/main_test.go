package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

func TestParse(t *testing.T) {
	plan, stores, err := parse(strings.Fields("-rows 1,30 -faults 2 -mixed 5 -duration 1m -seed 7 -lease 3s -out x -stores leases,sqlite -old v0.9.0 -least-faults 8"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// The command that repeats a campaign has its seed, and no directory.
	const command = "go run . -duration 1m0s -faults 2 -lease 3s -least-faults 8 -mixed 5 -old v0.9.0 -rows 1,30 -stores leases,sqlite -seed 7"
	if !slices.Equal(plan.Rows, []int{1, 30}) || plan.Faults != 2 || plan.Duration != time.Minute || plan.Command != command ||
		plan.Fleet.Seed != 7 || plan.Fleet.Mixed != 5 || plan.Fleet.Lease != 3*time.Second || plan.Fleet.Dir != "x" || plan.Old != "v0.9.0" || plan.Least.Faults != 8 ||
		!slices.Equal(stores, []fleet.Store{fleet.Leases, fleet.SQLite}) {
		t.Errorf("parsed %+v, %v", plan, stores)
	}
	if plan, _, err := parse([]string{"-old", "last"}, io.Discard); err != nil || plan.Old == "last" || plan.Old == "" {
		t.Errorf("the last release is %q, %v", plan.Old, err)
	}
	if plan, stores, err = parse(nil, io.Discard); err != nil || plan.Rows != nil || plan.Old != "" || plan.Faults == 0 || !slices.Equal(stores, []fleet.Store{fleet.Postgres}) {
		t.Errorf("the defaults are %+v, %v, %v", plan, stores, err)
	}
	for _, wrong := range []string{"-rows x", "more", "-faults 0", "-processes 0", "-mixed -1", "-stores oracle"} {
		if _, _, err := parse(strings.Fields(wrong), io.Discard); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}
