package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// A Series is a campaign for each of several stores.
type Series []*Result

// Each runs a campaign for each of stores, one after the other. Each has an
// equal share of plan.Duration, and a directory of its own for its histories.
// The first error ends the series.
func Each(ctx context.Context, plan Plan, stores []fleet.Store, run func(context.Context, Plan) (*Result, error)) (Series, error) {
	var all Series
	for _, store := range stores {
		of := plan
		of.Fleet.Store = store
		if !store.Services() {
			of.Fleet.Services = 0
		}
		if len(stores) > 1 {
			of.Duration = plan.Duration / time.Duration(len(stores))
			of.Fleet.Dir = filepath.Join(plan.Fleet.Dir, string(store))
			if err := os.MkdirAll(of.Fleet.Dir, 0o700); err != nil {
				return all, err
			}
			fmt.Fprintf(plan.Progress, "%v:\n", store)
		}
		result, err := run(ctx, of)
		if result != nil {
			all = append(all, result)
		}
		if err != nil {
			return all, fmt.Errorf("%v: %w", store, err)
		}
		if len(stores) > 1 {
			result.events, result.writes = nil, nil // that of the next store needs the room
		}
	}
	return all, nil
}

// Saved returns the stores whose histories a series has left in dir. It returns
// none if dir has the histories of one campaign.
func Saved(dir string) (stores []fleet.Store) {
	for _, store := range fleet.Stores() {
		if _, err := os.Stat(filepath.Join(dir, string(store))); !errors.Is(err, os.ErrNotExist) {
			stores = append(stores, store)
		}
	}
	return stores
}

// String returns the table of each store.
func (s Series) String() string {
	var b strings.Builder
	for i, r := range s {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(r.String())
	}
	return b.String()
}
