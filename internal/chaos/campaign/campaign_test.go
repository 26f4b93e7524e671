package campaign_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/chaos/campaign"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/starve"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/leaktest"
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
	code = leaktest.Check(code, stuck...)
	os.Exit(code)
}

// busy is for a machine whose load nobody controls. No test here fails because
// of the machine's speed: times are in the log. A campaign by the command
// judges them.
const busy = 30 * time.Second

// settings is a fleet for a short run, on this store.
func settings(t *testing.T, store fleet.Store, processes int) fleet.Settings {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return fleet.Settings{Store: store, Processes: processes, Callers: 4, Keys: 8, Lease: 3 * time.Second, Dir: t.TempDir(), Seed: seed}
}

// safe fails the test if two holders had one lock, a lock was left behind, or
// a stale write is in the database. All else that the campaign has judged is in
// the log.
func safe(t *testing.T, result *campaign.Result, err error) {
	t.Helper()
	if result == nil || result.Report == nil {
		t.Fatalf("the history was not checked: %v", err)
	}
	t.Logf("\n%v", result)
	if unsafe := campaign.Unsafe(err); unsafe != nil {
		t.Errorf("%v: %v", unsafe, err)
	} else if err != nil {
		t.Logf("no failure here, since a slow machine may be the cause: %v", err)
	}
}

// A minute's campaign for each store: the faults that take a moment, beside all
// kinds of callers.
func TestLongCampaign(t *testing.T) {
	rows := map[fleet.Store][]int{
		fleet.Postgres:     {2, 5},
		fleet.Leases:       {1, 8, 11, 12, 13, 30},
		fleet.PooledLeases: {3, 8, 13, 30, 34},
		fleet.MariaDB:      {1, 8, 11, 13, 15, 25, 30, 33},
		fleet.SQLite:       {1, 2, 3, 30, 35, 36},
	}
	for _, row := range faults.Rows(fleet.Postgres) {
		if row.Quick {
			rows[fleet.Postgres] = append(rows[fleet.Postgres], row.Number)
		}
	}
	for _, store := range fleet.Stores() {
		t.Run(string(store), func(t *testing.T) {
			set := settings(t, store, 4)
			set.Mixed, set.Brisk, set.Services = 4, 1, 2
			plan := campaign.Plan{Rows: rows[store], Faults: 1, Fleet: set, Busy: busy, Progress: t.Output()}
			result, err := campaign.Run(t.Context(), plan)
			safe(t, result, err)
			if result.Services == nil || result.Services.Registry != store.Registry() {
				t.Errorf("checked: %+v", result.Services)
			}
		})
	}
}

// What an interrupted campaign has seen is checked, and can be checked again.
func TestLongInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	plan := campaign.Plan{Rows: []int{13}, Faults: 1000, Fleet: settings(t, fleet.Postgres, 2), Busy: busy, Progress: writerFunc(interrupt)}
	result, err := campaign.Run(ctx, plan)
	safe(t, result, err)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if text := result.String(); !strings.Contains(text, "was interrupted") {
		t.Errorf("in\n%s", text)
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

func TestUnknownRow(t *testing.T) {
	if _, err := campaign.Run(t.Context(), campaign.Plan{Rows: []int{99}}); err == nil {
		t.Error("there is no row 99, and no error")
	}
}
