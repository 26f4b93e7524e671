package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	plan, err := parse(strings.Fields("-rows 1,30 -faults 2 -duration 1m -seed 7 -lease 3s -out x"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(plan.Rows, []int{1, 30}) || plan.Faults != 2 || plan.Duration != time.Minute ||
		plan.Fleet.Seed != 7 || plan.Fleet.Lease != 3*time.Second || plan.Fleet.Dir != "x" {
		t.Errorf("parsed %+v", plan)
	}
	if plan, err = parse(nil, io.Discard); err != nil || plan.Rows != nil || plan.Faults == 0 || plan.Fleet.Processes == 0 {
		t.Errorf("the defaults are %+v, %v", plan, err)
	}
	for _, wrong := range []string{"-rows x", "more", "-faults 0", "-processes 0"} {
		if _, err := parse(strings.Fields(wrong), io.Discard); err == nil {
			t.Errorf("%q was accepted", wrong)
		}
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
