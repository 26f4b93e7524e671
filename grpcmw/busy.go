package grpcmw

import (
	"cmp"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/places"
)

// busy returns the rejection for a key that other calls hold. It keeps the last
// one of each level, which depends only on the size of the limit and the time to
// wait. Making its details would take most of the time of a rejection.
func (g *guard) busy(err error) *rejection {
	full := places.Full(err)
	level := max(0, slices.IndexFunc(g.levels, func(l Level) bool { return string(l.Limiter.Namespace()) == full.Namespace }))
	l := g.levels[level].Limiter
	size, retry := cmp.Or(full.Limit, l.Limit()), full.RetryAfter
	kept := &g.lastBusy[level]
	if last := kept.Load(); last != nil && last.size == size && last.retry == retry {
		return &last.rejection
	}
	limit := g.limit(l)
	limit.Size = size
	made := &busyStatus{size, retry, *rejectionOf(limit.Busy(retry))}
	if g.pushback > 0 {
		made.rejection.pushback = newPushback(g.pushback)
	}
	kept.Store(made)
	return &made.rejection
}

// A busyStatus is the rejection for a key that may be free after retry.
type busyStatus struct {
	size      int // how many calls the limit admits
	retry     time.Duration
	rejection rejection
}
