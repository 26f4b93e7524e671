package grpcmw

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// busy returns the rejection for a key that other calls hold. It keeps the last
// one of each level, which depends only on the size of the limit and the time to
// wait. Making its details would take most of the time of a rejection.
func (g *guard) busy(err error) *rejection {
	full := &ratelimit.BusyError{RetryAfter: time.Second}
	_ = errors.As(err, &full)
	level := max(0, slices.IndexFunc(g.levels, func(l Level) bool { return string(l.Limiter.Namespace()) == full.Namespace }))
	l := g.levels[level].Limiter
	size, retry := cmp.Or(full.Limit, l.Limit()), full.RetryAfter
	kept := &g.lastBusy[level]
	if last := kept.Load(); last != nil && last.size == size && last.retry == retry {
		return &last.rejection
	}
	s := g.busyFor(l, size, retry)
	made := &busyStatus{size, retry, rejection{status: s, pushback: newPushback(cmp.Or(g.pushback, retry))}}
	kept.Store(made)
	return &made.rejection
}

// A busyStatus is the rejection for a key that may be free after retry.
type busyStatus struct {
	size      int // how many calls the limit admits
	retry     time.Duration
	rejection rejection
}

// busyFor makes the status of a busy key of l, which admits size calls. It does not hold the key: the
// subject of the quota is the limiter's namespace.
func (g *guard) busyFor(l *ratelimit.Limiter, size int, retry time.Duration) *status.Status {
	text := cmp.Or(g.busyText, limitText(l, size)) + tryAgain(retry)
	if g.conflict {
		return detailed(codes.Aborted, text, g.errorInfo(reasonConflict, l), retryInfo(retry))
	}
	quota := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject:     string(l.Namespace()),
		Description: "calls at a time",
	}}}
	return detailed(codes.ResourceExhausted, text, g.errorInfo(reasonQuota, l), retryInfo(retry), quota)
}
