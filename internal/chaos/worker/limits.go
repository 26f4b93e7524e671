package worker

import (
	"context"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A limit is one of each of several ids. All processes have the same.
type limit struct {
	ns      sqllock.Namespace
	ids     int
	slots   int                      // of each id
	at      func(history.Moment) int // the limit in force, if it moves; else nil
	trying  *ratelimit.Limiter
	waiting *ratelimit.Limiter // with WithWait
}

// levels are those of stacks: one place for each user, up to three for a
// tenant, and four in all. The limit of a tenant goes up and down.
var levels = []limit{
	{ns: "user", ids: 6, slots: 1},
	{ns: "tenant", ids: 2, slots: 3, at: tenantLimit},
	{ns: "total", ids: 1, slots: 4},
}

// longestWait is how long a request waits for a place.
const longestWait = 250 * time.Millisecond

func limitsOn(locks sqllock.Locker) (all []limit) {
	wait := ratelimit.WithWait(longestWait, 100)
	for _, v := range levels {
		var opts []ratelimit.Option
		if v.at != nil {
			opts = append(opts, ratelimit.WithLimit(func(context.Context, string) int { return v.at(history.Now()) }))
		}
		v.trying = ratelimit.AtMost(v.slots, locks, v.ns, opts...)
		v.waiting = ratelimit.AtMost(v.slots, locks, v.ns, append(opts, wait)...)
		all = append(all, v)
	}
	return all
}

// tenantPhase is how long a tenant's limit stays the same. Some holds last
// longer.
const tenantPhase = history.Moment(200 * time.Millisecond)

// tenantLimit is a tenant's limit at m. The processes of a host share the
// clock, so all of them know of a change at once.
func tenantLimit(m history.Moment) int {
	limits := [...]int{3, 1, 2, 1, 3, 2}
	return limits[m/tenantPhase%history.Moment(len(limits))]
}

// most is the highest limit in force at some moment from one to the other.
func (l *limit) most(from, to history.Moment) int {
	if l.at == nil {
		return l.slots
	}
	most := max(l.at(from), l.at(to))
	for m := from; m < to; m += tenantPhase {
		most = max(most, l.at(m))
	}
	return most
}

// place makes up a place of l for a, whose request waits for it or not.
func (c *caller) place(a *request, l *limit, waits bool) ratelimit.Level {
	id := strconv.Itoa(c.rng.IntN(l.ids))
	a.places = append(a.places, place{l.ns.Key(id).Int64(), l})
	if waits {
		a.wait += longestWait
		return ratelimit.Level{Limiter: l.waiting, ID: id}
	}
	return ratelimit.Level{Limiter: l.trying, ID: id}
}

func (c *caller) limit(a *request) {
	at := c.place(a, &c.limits[c.rng.IntN(len(c.limits))], a.waits)
	a.kind = history.Limit
	a.call = func(ctx context.Context) (sqllock.Locks, error) {
		lock, err := at.Limiter.Acquire(ctx, at.ID)
		return sqllock.Locks{lock}, err
	}
}

// stack makes a a call on two or all levels. Of those that wait, one may have
// levels that do not.
func (c *caller) stack(a *request) {
	var stack []ratelimit.Level
	skipped := c.rng.IntN(2 * len(c.limits)) // half of them skip none
	for i := range c.limits {
		if i != skipped {
			stack = append(stack, c.place(a, &c.limits[i], a.waits && c.chance(70)))
		}
	}
	a.kind, a.waits = history.Stack, a.wait > 0
	a.call = func(ctx context.Context) (sqllock.Locks, error) { return ratelimit.AcquireAll(ctx, stack...) }
}
