package grpcmw

import (
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// busy returns the rejection for a key that other calls hold. It keeps the last
// one, which depends only on the time to wait. Making its details would take
// most of the time of a rejection.
func (g *guard) busy(err error) *rejection {
	retry := time.Second
	if b := (*ratelimit.BusyError)(nil); errors.As(err, &b) {
		retry = b.RetryAfter
	}
	if last := g.lastBusy.Load(); last != nil && last.retry == retry {
		return &last.rejection
	}
	made := &busyStatus{retry, *rejectionOf(g.limit().Busy(retry))}
	if g.pushback > 0 {
		made.rejection.pushback = newPushback(g.pushback)
	}
	g.lastBusy.Store(made)
	return &made.rejection
}

// A busyStatus is the rejection for a key that may be free after retry.
type busyStatus struct {
	retry     time.Duration
	rejection rejection
}
