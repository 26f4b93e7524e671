package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// savedName is the file in the directory of the histories with all else that a
// check needs.
const savedName = "campaign.json"

// A saved is a campaign without its histories.
type saved struct {
	Settings    fleet.Settings   `json:"settings"`
	Busy        time.Duration    `json:"busy,omitempty"`
	Command     string           `json:"command"`
	Rows        []savedRow       `json:"rows"`
	Outcomes    []faults.Outcome `json:"outcomes"`
	Gathered    bool             `json:"gathered"`
	Writes      []check.Stored   `json:"writes"`
	Left        check.Left       `json:"left"`
	Stale       int              `json:"stale"`
	Faults      int              `json:"faults"`
	Took        time.Duration    `json:"took"`
	Server      string           `json:"server"`
	Interrupted bool             `json:"interrupted,omitempty"`
}

// A savedRow is a RowResult. Its row is found by the number.
type savedRow struct {
	Number   int           `json:"number"`
	Name     string        `json:"name"`
	Times    int           `json:"times"`
	Lost     int64         `json:"lost"`
	Outside  int           `json:"outside"`
	Served   time.Duration `json:"served"`
	Unmade   []string      `json:"unmade,omitempty"`
	Err      string        `json:"err,omitempty"`
	Violated bool          `json:"violated,omitempty"` // Err matches faults.ErrViolated
}

// save writes to dir what Recheck needs.
func (r *Result) save(dir string) error {
	s := saved{
		Settings: r.settings, Busy: r.busy, Command: r.command, Outcomes: r.outcomes, Gathered: r.gathered, Writes: r.writes, Left: r.left, Stale: r.Stale, Faults: r.Faults,
		Took: r.Took, Server: r.Server, Interrupted: r.interrupted,
	}
	for _, of := range r.Rows {
		row := savedRow{Number: of.Row.Number, Name: of.Row.Name, Times: of.Times, Lost: of.Lost, Outside: of.Outside, Served: of.Served, Unmade: of.Unmade}
		if of.Err != nil {
			row.Err, row.Violated = of.Err.Error(), errors.Is(of.Err, faults.ErrViolated)
		}
		s.Rows = append(s.Rows, row)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, savedName), text, 0o600)
}

// Recheck checks the histories in plan.Fleet.Dir again, without a fleet. A
// campaign that was itself killed is checked in part: nothing is known of what
// was written.
func Recheck(_ context.Context, plan Plan) (*Result, error) {
	dir := plan.Fleet.Dir
	text, err := os.ReadFile(filepath.Join(dir, savedName))
	if errors.Is(err, os.ErrNotExist) {
		r, err := remains(plan.Fleet)
		if err != nil {
			return nil, err
		}
		return r, r.check(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("campaign: %s: %w", savedName, err)
	}
	r, err := s.result()
	return r, errors.Join(err, r.check(dir))
}

// result returns the saved campaign, and what had gone wrong in it.
func (s *saved) result() (r *Result, err error) {
	r = &Result{
		Stored: len(s.Writes), Stale: s.Stale, Faults: s.Faults, Took: s.Took, Server: s.Server,
		settings: s.Settings, busy: s.Busy, command: s.Command, interrupted: s.Interrupted, outcomes: s.Outcomes, gathered: s.Gathered, writes: s.Writes, left: s.Left,
	}
	if s.Interrupted {
		err = errInterrupted
	}
	for _, row := range s.Rows {
		of := &RowResult{Row: rowNumbered(s.Settings.Store, row.Number, row.Name), Times: row.Times, Lost: row.Lost, Outside: row.Outside, Served: row.Served, Unmade: row.Unmade}
		switch {
		case row.Violated:
			of.Err = fmt.Errorf("%w, as it was reported: %s", faults.ErrViolated, row.Err)
		case row.Err != "":
			of.Err = errors.New(row.Err)
		}
		err = errors.Join(err, of.Err)
		r.Rows = append(r.Rows, of)
	}
	return r, err
}

// rowNumbered returns the row of this number, under the name that its campaign
// gave it.
func rowNumbered(store fleet.Store, number int, name string) faults.Row {
	for _, row := range faults.Rows(store) {
		if row.Number == number {
			row.Name = name
			return row
		}
	}
	return faults.Row{Number: number, Name: name}
}

// remains makes a Result from the faults of a campaign that was not saved. The
// time after each fault counts as trouble for as long as a process may take to
// serve again.
func remains(set fleet.Settings) (*Result, error) {
	events, err := read(set.Dir)
	if err == nil && len(events) == 0 {
		err = fmt.Errorf("campaign: there is no history in %s", set.Dir)
	}
	if err != nil {
		return nil, err
	}
	r := &Result{settings: set, interrupted: true}
	var injected []history.Fault
	for _, e := range events {
		if e.Fault != nil {
			injected = append(injected, *e.Fault)
		}
	}
	var rows []faults.Row
	seen := map[int]bool{}
	for _, f := range injected {
		if !seen[f.Row] {
			rows = append(rows, rowNumbered(set.Store, f.Row, f.Name))
		}
		seen[f.Row] = true
	}
	r.Rows = newResult(set, rows).Rows
	for _, f := range injected {
		r.add(rowNumbered(set.Store, f.Row, f.Name), faults.Outcome{Fault: f, Recovery: servedWithin}, nil)
	}
	return r, nil
}
