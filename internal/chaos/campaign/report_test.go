package campaign

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// series is that of two stores. In the second one a lock overlapped another.
func series() Series {
	good, bad := newResult(fleetSettings(), faults.Rows(fleet.Postgres)[:1]), newResult(fleetSettings(), faults.Rows(fleet.SQLite)[:1])
	good.command = "go run . -seed 7"
	good.settings.Store, bad.settings.Store = fleet.Postgres, fleet.SQLite
	good.Server, bad.Server = "PostgreSQL 15.1", "SQLite 3.50"
	good.Report, bad.Report = &check.Report{Operations: 1_234_567}, &check.Report{Operations: 3, Overlaps: make([]check.Overlap, 2)}
	good.Services = &check.ServicesReport{Registry: true, Read: check.Count{All: 3000, Troubled: 7}}
	return Series{good, bad}
}

// A report is made with its words. One that exists keeps its own, and gets other
// figures.
func TestWriteReport(t *testing.T) {
	name := filepath.Join(t.TempDir(), "campaign.md")
	if err := errors.Join(CheckReport(name), series().WriteReport(name)); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := read()
	for _, want := range []string{
		"`go run . -seed 7`", "PostgreSQL (PostgreSQL 15.1), SQLite (SQLite 3.50)", "| PostgreSQL | 0 | 1,234,567 |", "| SQLite | 0 | 3 |",
		"| all | 0 | 1,234,570 |", "| watermarks read | 3,000 (7) | – |", "| looks of an operator | 0 (0) | – |", "| VIOLATED |", "### SQLite", "## What this does not show", legend, "| row | fault |",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
	if err := os.WriteFile(name, []byte(strings.Replace(first, "## Design", "## Our design", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	again := series()[:1]
	again[0].command = "" // of histories that were saved without it
	if err := again.WriteReport(name); err != nil {
		t.Fatal(err)
	}
	if text := read(); !strings.Contains(text, "## Our design") || strings.Contains(text, "To repeat it") || strings.Contains(text, "### SQLite") {
		t.Errorf("written again:\n%s", text)
	}
	if err := os.WriteFile(name, []byte("# A page\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckReport(name); !errors.Is(err, errSections) {
		t.Errorf("a page without sections: %v", err)
	}
}

func TestStaleWrites(t *testing.T) {
	writes := []check.Stored{{Key: 1, N: 2, LSN: 5}, {Key: 1, N: 1, LSN: 7}, {Key: 2, N: 1, LSN: 1}, {Key: 1, N: 3, Timeline: 1}}
	if n := staleWrites(writes); n != 1 {
		t.Errorf("%d stale writes, want 1", n)
	}
	if n := staleWrites(nil); n != 0 {
		t.Errorf("%d stale writes of none", n)
	}
}
