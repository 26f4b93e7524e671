package grpcmw

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/internal/rpclimit"
)

// A guard is what both interceptors share.
type guard struct {
	rpclimit.Guard[interceptors.CallMeta]
	pushback time.Duration // for a busy key; 0 for that of RetryInfo
}

// newGuard makes the guard of levels. caller is for panics.
func newGuard(caller string, levels []Level, opts []Option) *guard {
	g := new(guard)
	g.Package, g.Route = "grpcmw", "method"
	g.Own = ownStatus
	g.With = func(call interceptors.CallMeta, message any) interceptors.CallMeta {
		call.ReqOrNil = message
		return call
	}
	rpclimit.Init(&g.Guard, caller, levels)
	for _, opt := range opts {
		opt(g)
	}
	return g
}

// ownStatus returns the status that err is or wraps. status.FromError would add
// the texts of the errors around it.
func ownStatus(err error) (code.Code, error) {
	var own interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &own) {
		return code.Code_OK, nil
	}
	return code.Code(own.GRPCStatus().Code()), own.GRPCStatus().Err() //nolint:gosec // the two have the same numbers
}

// failed returns s as the error of a call. Its pushback goes into the trailer,
// by the call's setTrailer: a header would end gRPC's own retries. A call that
// was interrupted has none, as it may have had effects. A client would obey one
// beyond its deadline, and get DEADLINE_EXCEEDED instead of the rejection.
func (g *guard) failed(ctx context.Context, s *rpclimit.Status, setTrailer func(metadata.MD)) error {
	pushback := s.Retry
	switch s.Reason {
	case admission.Chosen:
		return s.Err
	case admission.Interrupted:
		pushback = 0
	case admission.Busy:
		pushback = cmp.Or(g.pushback, pushback)
	}
	deadline, has := ctx.Deadline()
	if inTime := !has || time.Until(deadline) > pushback; inTime && pushback > 0 {
		ms := (pushback + time.Millisecond - 1) / time.Millisecond
		setTrailer(metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(int64(ms), 10)))
	}
	details := make([]protoadapt.MessageV1, len(s.Details))
	for i, d := range s.Details {
		details[i] = protoadapt.MessageV1Of(d)
	}
	plain := status.New(codes.Code(s.Code), s.Text) //nolint:gosec // the two have the same numbers
	if full, err := plain.WithDetails(details...); err == nil {
		plain = full // better without details than not at all
	}
	if s.Err != nil {
		return statusError{s.Err, plain}
	}
	return plain.Err()
}

// A statusError is an error with a status.
type statusError struct {
	error
	status *status.Status
}

func (e statusError) Unwrap() error              { return e.error }
func (e statusError) GRPCStatus() *status.Status { return e.status }
