package campaign_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/chaos/campaign"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/starve"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

func TestMain(m *testing.M) {
	worker.Main()
	starve.Main()
	code := m.Run()
	// A link of toxiproxy whose client is gone keeps the goroutines that had
	// something to send to it. The tests of package proxy check the others.
	stuck := []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
	}
	if err := goleak.Find(stuck...); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

// busy is for a machine that runs the tests of other packages meanwhile. With it, a
// key that only the end of the lease frees is still found. A campaign by the
// command is stricter.
const busy = 750 * time.Millisecond

// A minute's campaign: every row that does not need the lease to pass, and of
// those that do two. The command runs the others, and longer.
func TestCampaign(t *testing.T) {
	plan := campaign.Plan{
		Rows:     []int{2, 5},
		Faults:   2,
		Busy:     busy,
		Fleet:    fleet.Settings{Processes: 4, Callers: 4, Mixed: 4, Keys: 12, Lease: 3 * time.Second, Dir: t.TempDir(), Seed: uint64(time.Now().UnixNano())},
		Progress: t.Output(),
	}
	for _, row := range faults.Rows(fleet.Postgres) {
		if row.Quick {
			plan.Rows = append(plan.Rows, row.Number)
		}
	}
	t.Logf("seed %d", plan.Fleet.Seed)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	result, err := campaign.Run(ctx, plan)
	if result == nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", result)
	if err != nil {
		t.Error(err)
	}
	if result.Report == nil {
		t.Error("the history was not checked")
	}
}

// Readers, sets, limits and stacks keep their guarantees in faults that take a
// moment, and leave nothing behind.
func TestMixed(t *testing.T) {
	set := settings(t, 4)
	set.Callers, set.Mixed, set.Keys, set.Lease = 4, 6, 4, 4*time.Second
	plan := campaign.Plan{Rows: []int{1, 3, 8, 12, 13}, Faults: 1, Fleet: set, Busy: busy, Progress: t.Output()}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	result, err := campaign.Run(ctx, plan)
	t.Logf("\n%v", result)
	if err != nil {
		t.Error(err)
	}
}

// Two campaigns with one seed do the same things to the same processes, beside all
// kinds of callers.
func TestRepeatable(t *testing.T) {
	const each = 2
	rows := []int{8, 13, 30}
	injected := func(seed uint64) (all []string) {
		set := settings(t, 4)
		set.Seed, set.Callers, set.Mixed, set.Brisk, set.Services = seed, 2, 1, 1, 1
		plan := campaign.Plan{Rows: rows, Faults: each, Fleet: set, Busy: busy, Progress: t.Output()}
		result, err := campaign.Run(t.Context(), plan)
		if result == nil || result.Faults != each*len(rows) || err != nil && !strings.HasPrefix(err.Error(), "campaign: too little happened") {
			t.Fatal(err)
		}
		file, err := os.Open(filepath.Join(set.Dir, "faults.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		events, err := history.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			all = append(all, fmt.Sprint(e.Fault.Row, " of ", e.Fault.Process))
		}
		return all
	}
	first, again, other := injected(7), injected(7), injected(8)
	if len(first) != each*len(rows) || !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Errorf("with one seed %q and %q, with another %q", first, again, other)
	}
}

// Each store keeps its promises in faults that take a moment. So do watermarks,
// idempotency, elections and, where there is one, the registry.
func TestStores(t *testing.T) {
	rows := map[fleet.Store][]int{
		fleet.Postgres:     {1, 2, 8, 15},
		fleet.Leases:       {1, 8, 11, 12, 13, 30},
		fleet.PooledLeases: {3, 8, 13, 30, 34},
		fleet.MariaDB:      {1, 8, 11, 13, 15, 25, 30, 33},
		fleet.SQLite:       {1, 2, 3, 30, 35, 36},
	}
	for _, store := range fleet.Stores() {
		t.Run(string(store), func(t *testing.T) {
			set := settings(t, 4)
			set.Store, set.Mixed, set.Brisk, set.Services = store, 4, 1, 2
			plan := campaign.Plan{Rows: rows[store], Faults: 1, Fleet: set, Busy: busy, Progress: t.Output()}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			result, err := campaign.Run(ctx, plan)
			t.Logf("\n%v", result)
			if err != nil {
				t.Error(err)
			}
			if result != nil && (result.Services == nil || result.Services.Registry != store.Registry()) {
				t.Errorf("checked: %+v", result.Services)
			}
		})
	}
}

// What an interrupted campaign has seen is checked, and can be checked again.
func TestInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	plan := campaign.Plan{Rows: []int{13}, Faults: 1000, Fleet: settings(t, 2), Busy: busy, Progress: writerFunc(interrupt)}
	result, err := campaign.Run(ctx, plan)
	if !errors.Is(err, context.Canceled) || result == nil || result.Report == nil {
		t.Fatalf("%v, %v", result, err)
	}
	if text := result.String(); !strings.Contains(text, "was interrupted") || result.Faults == 0 || result.Report.Operations == 0 {
		t.Errorf("%d faults in\n%s", result.Faults, text)
	}
	again, err := campaign.Recheck(t.Context(), plan)
	if err == nil || again == nil || again.String() != result.String() {
		t.Errorf("checked again: %v, %v", again, err)
	}
}

// A writerFunc is called at each line.
type writerFunc func()

func (f writerFunc) Write(line []byte) (int, error) {
	f()
	return len(line), nil
}

// settings is a fleet for a short run.
func settings(t *testing.T, processes int) fleet.Settings {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return fleet.Settings{Processes: processes, Callers: 4, Keys: 8, Lease: 3 * time.Second, Dir: t.TempDir(), Seed: seed}
}

// Without a fault nothing is lost, and work is done.
func TestHealthy(t *testing.T) {
	plan := campaign.Plan{Duration: 2 * time.Second, Fleet: settings(t, 2), Busy: busy, Progress: t.Output()}
	result, err := campaign.Healthy(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", result)
	if h := result.Health; h.Losses > 0 || result.Report.Troubled > 0 || result.Took < plan.Duration {
		t.Errorf("%v in %v", h, result.Took)
	}
}

// Each process is frozen, and what it does when it wakes up is not late.
func TestFreezes(t *testing.T) {
	plan := campaign.Plan{Freezes: 8, Fleet: settings(t, 6), Busy: busy, Progress: t.Output()}
	result, err := campaign.Freezes(t.Context(), plan)
	if result == nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", result)
	if err != nil {
		t.Error(err)
	}
	if result.Faults != plan.Freezes || len(result.Report.Notifications) != 1 || result.Report.Notifications[0].Locks == 0 {
		t.Errorf("%d freezes, and nothing lost that could have been used", result.Faults)
	}
	plan.Fleet.Processes = 2
	if _, err := campaign.Freezes(t.Context(), plan); err == nil {
		t.Error("all processes but none would be frozen at once")
	}
}

func TestUnknownRow(t *testing.T) {
	if _, err := campaign.Run(t.Context(), campaign.Plan{Rows: []int{99}}); err == nil {
		t.Error("there is no row 99, and nobody said so")
	}
}
