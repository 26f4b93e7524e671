package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// A Series is a campaign for each of several stores.
type Series []*Result

// Each runs a campaign for each of stores, one after the other. Each has an
// equal share of plan.Duration, and a directory of its own for its histories.
// After an error the other stores still have their turn, unless ctx has ended.
// The error is that of all stores.
func Each(ctx context.Context, plan Plan, stores []fleet.Store, run func(context.Context, Plan) (*Result, error)) (all Series, err error) {
	if len(stores) == 1 {
		plan.Fleet.Store = stores[0]
		result, err := run(ctx, plan)
		return all.with(result), err
	}
	for i, store := range stores {
		if i > 0 && ctx.Err() != nil {
			err = errors.Join(err, fmt.Errorf("%v: %w", store, errNotRun))
			continue
		}
		fmt.Fprintf(plan.Progress, "%v:\n", store)
		result, failed := run(ctx, plan.shareOf(store, len(stores)))
		if failed != nil {
			failed = fmt.Errorf("%v: %w", store, failed)
			fmt.Fprintln(plan.Progress, failed)
		}
		err = errors.Join(err, failed)
		if result != nil {
			fmt.Fprintf(plan.Progress, "%s\n", result.How())
			result.events, result.writes, result.left = nil, nil, check.Left{} // the next store needs the room
		}
		all = all.with(result)
	}
	return all, err
}

// errNotRun reports that a series was interrupted before the turn of a store.
var errNotRun = errors.New("campaign: not run, since the series was interrupted")

// shareOf returns the plan of one of n stores.
func (p Plan) shareOf(store fleet.Store, n int) Plan {
	p.Fleet.Store = store
	p.Fleet.Dir = filepath.Join(p.Fleet.Dir, string(store))
	p.Duration /= time.Duration(n)
	return p
}

// with returns s with r, which may be nil.
func (s Series) with(r *Result) Series {
	if r == nil {
		return s
	}
	return append(s, r)
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
