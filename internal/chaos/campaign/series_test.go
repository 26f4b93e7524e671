package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// An error of one store takes no turn from the others, and the series reports
// all errors.
func TestSeriesGoesOnAfterAnError(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	fails := map[fleet.Store]error{fleet.Postgres: first, fleet.MariaDB: second}
	var ran []fleet.Store
	all, err := Each(t.Context(), Plan{Duration: 5 * time.Minute, Progress: io.Discard}, fleet.Stores(), func(_ context.Context, p Plan) (*Result, error) {
		ran = append(ran, p.Fleet.Store)
		if p.Duration != time.Minute || p.Fleet.Dir != string(p.Fleet.Store) {
			t.Errorf("%v works for %v in %s", p.Fleet.Store, p.Duration, p.Fleet.Dir)
		}
		return &Result{settings: p.Fleet}, fails[p.Fleet.Store]
	})
	if !slices.Equal(ran, fleet.Stores()) || len(all) != len(ran) {
		t.Errorf("ran %v with %d results", ran, len(all))
	}
	if !errors.Is(err, first) || !errors.Is(err, second) {
		t.Errorf("the error is %v", err)
	}
}

// After an interrupt the stores that have not had their turn are not run, and
// the series fails.
func TestSeriesInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ran := 0
	all, err := Each(ctx, Plan{Progress: io.Discard}, fleet.Stores(), func(context.Context, Plan) (*Result, error) {
		ran++
		interrupt()
		return &Result{}, nil
	})
	if ran != 1 || len(all) != 1 || !errors.Is(err, errNotRun) {
		t.Errorf("%d stores ran, with %d results: %v", ran, len(all), err)
	}
}

// Faults that could not be made are no violation, unless there are many, or a
// row has no other.
func TestUnmade(t *testing.T) {
	row := faults.Row{Number: 13, Effect: faults.Any}
	for _, tt := range []struct {
		made, unmade int
		ok           bool
	}{{40, 0, true}, {40, 2, true}, {40, 3, false}, {0, 1, false}, {10, 1, false}} {
		r := covered(row)
		for range tt.made {
			r.add(row, faults.Outcome{}, nil)
		}
		for range tt.unmade {
			r.add(row, faults.Outcome{Unmade: io.EOF}, nil)
		}
		if err := r.coverage(); (err == nil) != tt.ok || r.Faults != tt.made || len(r.Rows[0].Unmade) != tt.unmade {
			t.Errorf("%d made, %d not: %v, %+v", tt.made, tt.unmade, err, r.Rows[0])
		}
	}
}

// covered is a result in which enough happened.
func covered(row faults.Row) *Result {
	r := newResult(fleet.Settings{}, []faults.Row{row})
	r.Stored = 1
	r.Report = &check.Report{Contended: 1, Losses: 1}
	return r
}

// A seed determines the order of the faults.
func TestOrder(t *testing.T) {
	rows := faults.Rows(fleet.Postgres)
	of := func(seed uint64) (numbers []int) {
		for _, row := range order(rand.New(rand.NewPCG(seed, 2)), rows, 2) {
			numbers = append(numbers, row.Number)
		}
		return numbers
	}
	if len(of(7)) != 2*len(rows) || !slices.Equal(of(7), of(7)) || slices.Equal(of(7), of(8)) {
		t.Errorf("with one seed %v and %v, with another %v", of(7), of(7), of(8))
	}
}

// What no slow machine excuses is told apart from what one may cause.
func TestUnsafe(t *testing.T) {
	late := fmt.Errorf("row 14: %w", errors.Join(faults.ErrViolated, check.ErrSlow, check.ErrLong, errNotifiedLate))
	if err := Unsafe(late); err != nil {
		t.Errorf("what is late alone: %v", err)
	}
	if err := Unsafe(errors.Join(late, check.ErrOverlap)); !errors.Is(err, check.ErrOverlap) {
		t.Errorf("two holders: %v", err)
	}
}
