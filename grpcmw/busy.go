package grpcmw

import (
	"cmp"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	made := &busyStatus{retry, rejection{status: g.busyFor(retry), pushback: newPushback(cmp.Or(g.pushback, retry))}}
	g.lastBusy.Store(made)
	return &made.rejection
}

// A busyStatus is the rejection for a key that may be free after retry.
type busyStatus struct {
	retry     time.Duration
	rejection rejection
}

// busyFor makes the status of a busy key. It does not hold the key: the subject
// of the quota is the limiter's namespace.
func (g *guard) busyFor(retry time.Duration) *status.Status {
	text := cmp.Or(g.busyText, g.limitText()) + tryAgain(retry)
	if g.conflict {
		return detailed(codes.Aborted, text, g.errorInfo(reasonConflict), retryInfo(retry))
	}
	quota := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject:     string(g.limiter.Namespace()),
		Description: "calls at a time",
	}}}
	return detailed(codes.ResourceExhausted, text, g.errorInfo(reasonQuota), retryInfo(retry), quota)
}
