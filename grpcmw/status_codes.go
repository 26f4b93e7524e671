package grpcmw

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The reasons in ErrorInfo.
const (
	reasonQuota    = "CONCURRENCY_LIMIT_REACHED"
	reasonConflict = "CALL_IN_PROGRESS"
	reasonLost     = "LOCK_LOST"
)

// awayRetry is what a client is told to wait while locks cannot be taken. A session
// takes about as long to reconnect. It is random, so that clients that are rejected
// at one moment do not come back at one.
func awayRetry() time.Duration {
	return (time.Second + rand.N(2*time.Second)).Round(time.Millisecond)
}

// A refusal is how a call ends that is not admitted, or interrupted.
type refusal struct {
	status   *status.Status
	pushback pushback // the zero value for none
	fault    bool     // a KeyFunc failed with an error of its own
}

// keyVerdict is the refusal of a call whose key err says it has not.
func (g *guard) keyVerdict(ctx context.Context, err error) *refusal {
	if ended := endedBy(ctx, err); ended != nil {
		return &refusal{status: ended}
	}
	// The status as it is: status.FromError puts the texts around it into its own.
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) && own.GRPCStatus().Code() != codes.OK {
		return &refusal{status: own.GRPCStatus()}
	}
	var wrongField *fieldError
	var missing *missingError
	text := ""
	switch {
	case errors.As(err, &wrongField):
		text = wrongField.Error()
	case errors.As(err, &missing):
		text = missing.Error()
	case errors.Is(err, ErrNoKey), errors.Is(err, ErrNeedMessage): // there is no message to come
		text = ErrNoKey.Error()
	case errors.Is(err, errRepeated):
		text = errRepeated.Error()
	case errors.Is(err, ratelimit.ErrBadID):
		text = "grpcmw: bad key"
	case errors.Is(err, sqllock.ErrUnavailable):
		return away()
	default:
		return &refusal{status: status.New(codes.Internal, "The server could not find out whom the call is for."), fault: true}
	}
	return &refusal{status: status.New(codes.InvalidArgument, text)}
}

// verdict is the refusal of a call by the limiter.
func (g *guard) verdict(ctx context.Context, err error) *refusal {
	if errors.Is(err, ratelimit.ErrBusy) {
		return g.busy(err)
	}
	if ended := endedBy(ctx, err); ended != nil {
		return &refusal{status: ended}
	}
	if errors.Is(err, ratelimit.ErrBadID) {
		return &refusal{status: status.New(codes.InvalidArgument, err.Error())} // it says why, not what
	}
	return away()
}

// away is the refusal of a call while locks cannot be taken.
func away() *refusal {
	retry := awayRetry()
	s := detailed(codes.Unavailable, "The lock service is unavailable."+tryAgain(retry), retryInfo(retry))
	return &refusal{status: s, pushback: newPushback(retry)}
}

// interruption is how a call ends whose handler has returned err, if err is the
// end of ctx by the lock that ctx is bound to. Else it is nil: err is the
// handler's own, or ctx ended with around, the call's context outside of the
// lock. The client has ended that, or the lock of an interceptor around, which
// then has the call end with a status of its own.
func (g *guard) interruption(around, ctx context.Context, err error) *refusal {
	if err == nil || ctx.Err() == nil || hasOwnStatus(err) { // Err compares the clock
		return nil
	}
	cause := context.Cause(ctx)
	if around.Err() != nil && errors.Is(context.Cause(around), cause) {
		return nil
	}
	switch {
	case errors.Is(cause, sqllock.ErrLost), errors.Is(cause, sqllock.ErrClosed):
		if !endsWith(err, cause) && !errors.Is(err, sqllock.ErrLost) {
			return nil
		}
		retry := awayRetry()
		s := detailed(codes.Aborted, "The call was interrupted because its lock was lost."+tryAgain(retry),
			g.errorInfo(reasonLost), retryInfo(retry))
		return &refusal{status: s, pushback: newPushback(retry)}
	case errors.Is(cause, ratelimit.ErrMaxHold) && endsWith(err, cause):
		text := "The call took longer than the limit " + g.limitName() + " allows."
		return &refusal{status: status.New(codes.DeadlineExceeded, text)}
	}
	return nil
}

// endsWith reports whether err is the end of a context that ended with cause.
func endsWith(err, cause error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, cause) || status.Code(err) == codes.Canceled
}

// hasOwnStatus reports whether a handler has chosen err's status itself: one that
// is neither a context's nor ours.
func hasOwnStatus(err error) bool {
	var own interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &own) {
		return false
	}
	_, lost := own.(lostError)
	return !lost && own.GRPCStatus().Code() != codes.Canceled
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
