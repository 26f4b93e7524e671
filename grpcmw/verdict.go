package grpcmw

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// The reasons in ErrorInfo.
const (
	reasonQuota    = "CONCURRENCY_LIMIT_REACHED"
	reasonConflict = "CALL_IN_PROGRESS"
)

// awayRetry is what a client is told to wait while locks cannot be taken: about
// what a session takes to reconnect, and at random, so that clients refused at
// one moment do not come back at one.
func awayRetry() time.Duration {
	return (time.Second + rand.N(2*time.Second)).Round(time.Millisecond)
}

// keyVerdict is the status for a call whose key err says it has not.
func keyVerdict(ctx context.Context, err error) *status.Status {
	if ended := endedBy(ctx, err); ended != nil {
		return ended
	}
	// The status as it is: status.FromError puts the texts around it into its own.
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) && own.GRPCStatus().Code() != codes.OK {
		return own.GRPCStatus()
	}
	text := "grpcmw: bad key"
	var wrongField *fieldError
	switch {
	case errors.As(err, &wrongField):
		text = wrongField.Error()
	case errors.Is(err, ErrNoKey), errors.Is(err, ErrNeedMessage): // there is no message to come
		text = ErrNoKey.Error()
	case errors.Is(err, errRepeated):
		text = errRepeated.Error()
	}
	return status.New(codes.InvalidArgument, text)
}

// A refusal is how a call that is not admitted ends.
type refusal struct {
	status *status.Status
	again  bool // trying again may help, as the RetryInfo in status says
}

// verdict is the refusal of a call by the limiter.
func (g *guard) verdict(ctx context.Context, err error) *refusal {
	if errors.Is(err, ratelimit.ErrBusy) {
		return &refusal{status: g.busy(err), again: true}
	}
	if ended := endedBy(ctx, err); ended != nil {
		return &refusal{status: ended}
	}
	if errors.Is(err, ratelimit.ErrBadID) {
		return &refusal{status: status.New(codes.InvalidArgument, err.Error())} // it says why, not what
	}
	away := detailed(codes.Unavailable, "locks cannot be taken now", retryInfo(awayRetry()))
	return &refusal{status: away, again: true}
}

// busy is the status for a key that others hold. The last one made is kept:
// what it says changes with the time to wait only, and its details take most of
// the time of a refusal.
func (g *guard) busy(err error) *status.Status {
	retry := time.Second
	if b := (*ratelimit.BusyError)(nil); errors.As(err, &b) {
		retry = b.RetryAfter
	}
	if last := g.lastBusy.Load(); last != nil && last.retry == retry {
		return last.status
	}
	made := &busyStatus{retry, g.busyFor(retry)}
	g.lastBusy.Store(made)
	return made.status
}

// A busyStatus is the status for a key that may be free after retry.
type busyStatus struct {
	retry  time.Duration
	status *status.Status
}

// busyFor makes it. Nothing in it is the key: the quota's subject is the
// limiter's namespace.
func (g *guard) busyFor(retry time.Duration) *status.Status {
	namespace := string(g.limiter.Namespace())
	info := &errdetails.ErrorInfo{
		Reason:   reasonQuota,
		Domain:   g.domain,
		Metadata: map[string]string{"namespace": namespace},
	}
	if g.conflict {
		info.Reason = reasonConflict
		return detailed(codes.Aborted, "another call works on the same", info, retryInfo(retry))
	}
	quota := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject:     namespace,
		Description: "calls at a time",
	}}}
	return detailed(codes.ResourceExhausted, "too many calls at a time", info, retryInfo(retry), quota)
}

// endedBy is the status for the end of the call's own context, if that is what
// err says, else nil. While the database is away a wait that ends with the
// context has both errors, and the context's counts: it is the caller's.
func endedBy(ctx context.Context, err error) *status.Status {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return status.FromContextError(ended)
	}
	return nil
}

func retryInfo(d time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

func detailed(code codes.Code, text string, details ...protoadapt.MessageV1) *status.Status {
	s := status.New(code, text)
	if with, err := s.WithDetails(details...); err == nil {
		return with
	}
	return s // without details rather than not at all
}
