package grpcmw

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/internal/places"
	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

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
	var wrongField *rpclimit.FieldError
	var missing *rpclimit.MissingError
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
		return rejectionOf(rpclimit.Away())
	default:
		return &rejection{status: status.New(codes.Internal, rpclimit.FaultText), fault: true}
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
		return &rejection{status: status.New(codes.Internal, rpclimit.PolicyText), fault: true}
	case errors.Is(err, ratelimit.ErrBadID):
		return &rejection{status: status.New(codes.InvalidArgument, err.Error())} // the text has the reason, not the key
	}
	return rejectionOf(rpclimit.Away())
}

// interruption returns how a call ends whose handler has returned err, if err
// is the end of ctx by one of held, the locks to which ctx is bound, as
// [rpclimit.Limit.Interruption] says. Otherwise it returns nil.
func (g *guard) interruption(around, ctx context.Context, wanted *places.Wanted, held places.Held, err error) *rejection {
	if err == nil || ctx.Err() == nil || hasOwnStatus(err) { // Err compares the clock
		return nil
	}
	limit := g.limit(cmp.Or(wanted.EndedBy(ctx, held), g.levels[0].Limiter))
	if s, ok := limit.Interruption(around, ctx, err, status.Code(err) == codes.Canceled); ok {
		return rejectionOf(s)
	}
	return nil
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
