package grpcmw

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/internal/places"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The reasons in ErrorInfo.
const (
	reasonQuota    = "CONCURRENCY_LIMIT_REACHED"
	reasonConflict = "CALL_IN_PROGRESS"
	reasonLost     = "LOCK_LOST"
)

// awayRetry returns how long a client should wait while locks cannot be
// acquired. A session takes about as long to reconnect. The time is random, so
// that clients that are rejected at one moment do not return at one.
func awayRetry() time.Duration {
	return (time.Second + rand.N(2*time.Second)).Round(time.Millisecond)
}

// A rejection is how a call ends that was not admitted, or was interrupted.
type rejection struct {
	status   *status.Status
	pushback pushback // the zero value if there is none
	fault    bool     // a KeyFunc failed with an error of its own, or the policy of a limit
}

// keyRejection returns the rejection of a call whose KeyFunc has failed with
// err.
func (g *guard) keyRejection(ctx context.Context, err error) *rejection {
	if ended := endedBy(ctx, err); ended != nil {
		return &rejection{status: ended}
	}
	// status.FromError would add the texts of the errors around to the status.
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) && own.GRPCStatus().Code() != codes.OK {
		return &rejection{status: own.GRPCStatus()}
	}
	var wrongField *fieldError
	var missing *missingError
	text := ""
	switch {
	case errors.As(err, &wrongField):
		text = wrongField.Error()
	case errors.As(err, &missing):
		text = missing.Error()
	case errors.Is(err, ErrNoKey), errors.Is(err, ErrNeedMessage): // no message will come
		text = ErrNoKey.Error()
	case errors.Is(err, errRepeated):
		text = errRepeated.Error()
	case errors.Is(err, ratelimit.ErrBadID):
		text = "grpcmw: bad key"
	case errors.Is(err, sqllock.ErrUnavailable):
		return away()
	default:
		return &rejection{status: status.New(codes.Internal, "The server could not find out whom the call is for."), fault: true}
	}
	return &rejection{status: status.New(codes.InvalidArgument, text)}
}

// limiterRejection returns the rejection of a call for which the limiter has
// failed with err.
func (g *guard) limiterRejection(ctx context.Context, err error) *rejection {
	if errors.Is(err, ratelimit.ErrBusy) {
		return g.busy(err)
	}
	if ended := endedBy(ctx, err); ended != nil {
		return &rejection{status: ended}
	}
	switch {
	case errors.Is(err, ratelimit.ErrPolicy):
		return &rejection{status: status.New(codes.Internal, "The server could not find out what the limit of the call is."), fault: true}
	case errors.Is(err, ratelimit.ErrBadID):
		return &rejection{status: status.New(codes.InvalidArgument, err.Error())} // the text has the reason, not the key
	}
	return away()
}

// away returns the rejection of a call while locks cannot be acquired.
func away() *rejection {
	retry := awayRetry()
	s := detailed(codes.Unavailable, "The lock service is unavailable."+tryAgain(retry), retryInfo(retry))
	return &rejection{status: s, pushback: newPushback(retry)}
}

// interruption returns how a call ends whose handler has returned err, if err
// is the end of ctx by one of held, the locks to which ctx is bound. Otherwise
// it returns nil:
//
//   - err is the handler's own, or
//   - ctx ended with around, the call's context outside of the lock. Then the
//     client has left, or the lock of an interceptor around has ended. That
//     interceptor chooses the status.
func (g *guard) interruption(around, ctx context.Context, wanted *places.Wanted, held places.Held, err error) *rejection {
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
			g.errorInfo(reasonLost, g.endedBy(wanted, held, cause)), retryInfo(retry))
		return &rejection{status: s, pushback: newPushback(retry)}
	case errors.Is(cause, ratelimit.ErrMaxHold) && endsWith(err, cause):
		text := "The call took longer than the limit " + limitName(g.endedBy(wanted, held, cause)) + " allows."
		return &rejection{status: status.New(codes.DeadlineExceeded, text)}
	}
	return nil
}

// endedBy returns the limit whose lock has ended a call with cause.
func (g *guard) endedBy(wanted *places.Wanted, held places.Held, cause error) *ratelimit.Limiter {
	return cmp.Or(wanted.EndedBy(held, cause), g.levels[0].Limiter)
}

// endsWith reports whether err is the end of a context that ended with cause.
func endsWith(err, cause error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, cause) || status.Code(err) == codes.Canceled
}

// hasOwnStatus reports whether a handler has chosen the status of err itself.
// Then it is neither that of a context nor a lostError.
func hasOwnStatus(err error) bool {
	var own interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &own) {
		return false
	}
	_, lost := own.(lostError)
	return !lost && own.GRPCStatus().Code() != codes.Canceled
}

// endedBy returns the status for the end of ctx, the call's context, if err
// matches that, and otherwise nil. While the database is away, a wait that ends
// with the context has both errors. That of the context counts then.
func endedBy(ctx context.Context, err error) *status.Status {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return status.FromContextError(ended)
	}
	return nil
}
