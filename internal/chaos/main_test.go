package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/campaign"
)

func TestParse(t *testing.T) {
	w, err := parse(strings.Fields("-rows 1,30 -faults 2 -mixed 5 -services 6 -duration 1m -seed 7 -lease 3s -out x -timeline z"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	plan := w.plan
	if !slices.Equal(plan.Rows, []int{1, 30}) || plan.Faults != 2 || plan.Duration != time.Minute ||
		plan.Fleet.Seed != 7 || plan.Fleet.Mixed != 5 || plan.Fleet.Services != 6 || plan.Fleet.Lease != 3*time.Second || plan.Fleet.Dir != "x" || w.timeline != "z" {
		t.Errorf("parsed %+v", w)
	}
	if w, err = parse(nil, io.Discard); err != nil || w.plan.Rows != nil || w.plan.Faults == 0 || w.plan.Fleet.Processes != 4 {
		t.Errorf("the defaults are %+v, %v", w, err)
	}
}

// The flags of a new campaign do not go with -check.
func TestMode(t *testing.T) {
	tests := []struct {
		flags string
		ok    bool
	}{
		{"-check x", true},
		{"-check x -lease 3s", true},
		{"-check x -rows 3", false},
		{"-check x -out y", false},
		{"-rows x", false},
		{"more", false},
		{"-faults 0", false},
		{"-processes 0", false},
		{"-mixed -1", false},
		{"-services -1", false},
		{"-stores leases,sqlite", true},
		{"-stores all -duration 1h", true},
		{"-stores oracle", false},
		{"-stores leases,mariadb -timeline x", false},
		{"-check x -stores leases", false},
	}
	for _, tt := range tests {
		w, err := parse(strings.Fields(tt.flags), io.Discard)
		if (err == nil) != tt.ok || tt.ok && w.mode == nil {
			t.Errorf("%q: %+v, %v; want ok %v", tt.flags, w, err, tt.ok)
		}
	}
}

// The command that repeats a campaign has its seed, and no directory.
func TestCommand(t *testing.T) {
	w, err := parse(strings.Fields("-seed 7 -out histories -faults 2 -stores all"), io.Discard)
	if want := "go run . -faults 2 -stores all -seed 7"; err != nil || w.plan.Command != want {
		t.Errorf("%q, %v; want %q", w.plan.Command, err, want)
	}
}

// What was asked for and cannot be is an error.
func TestPublish(t *testing.T) {
	w := options{timeline: filepath.Join(t.TempDir(), "freeze.svg")}
	if err := w.publish(campaign.Series{new(campaign.Result)}); err == nil {
		t.Error("a picture of nothing was drawn")
	}
}

// A check again takes the directory as it is, and leaves it.
func TestCheckAgain(t *testing.T) {
	dir := t.TempDir()
	err := run(t.Context(), []string{"-check", dir}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "there is no history") {
		t.Errorf("an empty directory: %v", err)
	}
	held := `{"try":{"process":1,"key":1,"begin":1,"end":2,"result":"ok","lock":1}}` + "\n" +
		`{"hold":{"process":1,"key":1,"lock":1,"from":3,"valid":4,"unlockBegin":5,"unlock":"ok","ended":6}}` + "\n"
	name := filepath.Join(dir, "process-1.jsonl")
	if err := os.WriteFile(name, []byte(held), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"-check", dir}, io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Errorf("the history is not there any more: %v", err)
	}
}

func TestTakeEmpty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for range 2 {
		if err := takeEmpty(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "process-1.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := takeEmpty(dir); err == nil {
		t.Error("a directory with a history was taken")
	}
}
