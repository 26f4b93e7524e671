package grpcmw

import (
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// busy returns the rejection for a key that other calls hold. It keeps the last
// one of each level, which depends only on the time to wait. Making its details
// would take most of the time of a rejection.
func (g *guard) busy(err error) *rejection {
	retry, level := time.Second, 0
	if b := (*ratelimit.BusyError)(nil); errors.As(err, &b) {
		retry = b.RetryAfter
		level = max(0, slices.IndexFunc(g.levels, func(l Level) bool { return string(l.Limiter.Namespace()) == b.Namespace }))
	}
	kept := &g.lastBusy[level]
	if last := kept.Load(); last != nil && last.retry == retry {
		return &last.rejection
	}
	made := &busyStatus{retry, *rejectionOf(g.limit(g.levels[level].Limiter).Busy(retry))}
	if g.pushback > 0 {
		made.rejection.pushback = newPushback(g.pushback)
	}
	kept.Store(made)
	return &made.rejection
}

// A busyStatus is the rejection for a key that may be free after retry.
type busyStatus struct {
	retry     time.Duration
	rejection rejection
}
