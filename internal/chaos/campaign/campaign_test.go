package campaign_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/chaos/campaign"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/nemesis"
	"github.com/latchkey-go/latchkey/internal/chaos/starve"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

func TestMain(m *testing.M) {
	worker.Main()
	starve.Main()
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

// A minute's campaign: every row that does not need the lease to pass, and of
// those that do two. The command runs the others, and longer.
func TestCampaign(t *testing.T) {
	plan := campaign.Plan{
		Rows:     []int{2, 5},
		Faults:   2,
		Fleet:    fleet.Settings{Processes: 4, Callers: 4, Keys: 12, Lease: 2 * time.Second, Dir: t.TempDir(), Seed: uint64(time.Now().UnixNano())},
		Progress: t.Output(),
	}
	for _, row := range nemesis.Rows() {
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
	if result.Report == nil || result.Report.Contended == 0 || result.Stored == 0 || result.Report.Losses == 0 {
		t.Error("nothing was contended, written or lost: a campaign without trouble shows nothing")
	}
}

func TestUnknownRow(t *testing.T) {
	if _, err := campaign.Run(t.Context(), campaign.Plan{Rows: []int{99}}); err == nil {
		t.Error("there is no row 99, and nobody said so")
	}
}
