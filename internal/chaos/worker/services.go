package worker

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// ServicesSchema returns the statements that make the tables of services, in a
// database of kind d. Every role may use them.
func ServicesSchema(d sqllock.Dialect) (all []string) {
	all = slices.Concat(watermark.Schema(d), advancesSchema(), lockwatch.Schema(d), idempotency.Schema(d), payingSchema())
	if d == sqllock.PostgreSQL {
		all = append(all, "GRANT SELECT, INSERT, UPDATE, DELETE ON latchkey_watermarks, latchkey_responses, advances, advance_counters, payments,"+
			" latchkey_heartbeats, latchkey_waits TO PUBLIC")
	}
	return all
}

// connsOfServices is how many connections of the pool a caller of each package
// needs, together.
const connsOfServices = 3

// Left is what services have left in the tables of ServicesSchema.
func Left(ctx context.Context, db *sql.DB) (left check.Left, err error) {
	if left.Advanced, err = advanced(ctx, db); err != nil {
		return left, err
	}
	if left.Marks, err = marks(ctx, db); err != nil {
		return left, err
	}
	left.Paid, err = paid(ctx, db)
	return left, err
}

// serve starts callers of the packages around sqllock, which work until resting
// ends. They use the Session and the pool of the work, and have keys of their
// own. end ends what they share, when they have ended.
func (w *work) serve(resting context.Context, callers *sync.WaitGroup) (end func() error, err error) {
	if w.config.Services == 0 {
		return func() error { return nil }, nil
	}
	shop, err := openShop(w)
	if err != nil {
		return nil, err
	}
	for i := range w.config.Services {
		rng := func(kind int) *rand.Rand {
			return rand.New(rand.NewPCG(w.config.Seed, uint64(1_000_000*(1+kind)+i)))
		}
		advancing := advancing{caller{w, rng(0)}}
		callers.Go(func() { advancing.run(resting) })
		paying := paying{caller{w, rng(1)}, shop}
		callers.Go(func() { paying.run(resting) })
		if w.config.registry() == nil {
			continue
		}
		registered := registered{caller{w, rng(2)}}
		callers.Go(func() { registered.run(resting) })
	}
	for i := range termKeys { // one for each key, since a leader keeps others waiting
		c := newStanding(caller{w, rand.New(rand.NewPCG(w.config.Seed, uint64(9_000_000+i)))}, termKey(i))
		callers.Go(func() { c.run(resting) })
	}
	return shop.close, nil
}
