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

// busy is the refusal for a key that others hold. The last one made is kept:
// what it says changes with the time to wait only, and its details take most of
// the time of a rejection.
func (g *guard) busy(err error) *refusal {
	retry := time.Second
	if b := (*ratelimit.BusyError)(nil); errors.As(err, &b) {
		retry = b.RetryAfter
	}
	if last := g.lastBusy.Load(); last != nil && last.retry == retry {
		return &last.refusal
	}
	made := &busyStatus{retry, refusal{status: g.busyFor(retry), pushback: newPushback(cmp.Or(g.pushback, retry))}}
	g.lastBusy.Store(made)
	return &made.refusal
}

// A busyStatus is the refusal for a key that may be free after retry.
type busyStatus struct {
	retry   time.Duration
	refusal refusal
}

// busyFor makes its status. Nothing in it is the key: the quota's subject is the
// limiter's namespace.
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
