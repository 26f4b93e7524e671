package worker

import (
	"context"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A level is a limit of each of several ids.
type level struct {
	ns    sqllock.Namespace
	ids   int
	slots int                      // of each id
	at    func(history.Moment) int // the limit in force, if it moves; else nil
}

// levels are those of stacks: one place for each user, up to three for a
// tenant, and four in all. The limit of a tenant goes up and down.
var levels = []level{
	{"user", 6, 1, nil},
	{"tenant", 2, 3, tenantLimit},
	{"total", 1, 4, nil},
}

// A limit is a level in a process. All processes have the same.
type limit struct {
	level
	trying  *ratelimit.Limiter
	waiting *ratelimit.Limiter // with WithWait
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
		trying := ratelimit.AtMost(v.slots, locks, v.ns, opts...)
		all = append(all, limit{v, trying, ratelimit.AtMost(v.slots, locks, v.ns, append(opts, wait)...)})
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

func (l *limit) id(c *mixed) string { return strconv.Itoa(c.rng.IntN(l.ids)) }

func (l *limit) place(id string) place { return place{l.ns.Key(id).Int64(), l} }

func (l *limit) limiter(waits bool) *ratelimit.Limiter {
	if waits {
		return l.waiting
	}
	return l.trying
}

// wait is how long a request may wait on this level.
func (l *limit) wait(waits bool) time.Duration {
	if waits {
		return longestWait
	}
	return 0
}
