package connectmw

import (
	"context"
	"errors"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// An Interceptor calls a handler only if its limit admits the key of the call.
// Make one with [New] or [NewStack]. It is safe for concurrent use.
type Interceptor struct{ guard rpclimit.Guard[Call] }

var _ connect.Interceptor = (*Interceptor)(nil)

// New returns an interceptor that calls the handler if l admits the key of the
// call. Otherwise the call ends with a [*connect.Error]:
//
//   - resource_exhausted, with ErrorInfo, RetryInfo and QuotaFailure, if the
//     key is busy; with [WithConflict] aborted, with ErrorInfo and RetryInfo.
//     The ErrorInfo's reason is CONCURRENCY_LIMIT_REACHED or CALL_IN_PROGRESS;
//   - unavailable, with RetryInfo, if locks cannot be acquired now;
//   - invalid_argument if the call has no key, or a bad one. The text names the
//     field or the header that is missing;
//   - internal if the KeyFunc failed, as [KeyFunc] says, or the policy of the
//     limit ([ratelimit.ErrPolicy]), or if the message has no such [Field];
//   - deadline_exceeded or canceled if the call's context ended in the wait.
//
// With a RetryInfo comes Retry-After, in seconds rounded up, in the error's
// metadata. A unary call by the protocol Connect has it in the HTTP header, the
// other calls among the trailers.
//
// If the lock is lost while the handler runs, and the handler returns its
// context's error, the code is aborted, with RetryInfo and ErrorInfo of reason
// LOCK_LOST. If [ratelimit.WithMaxHold] ended the context, it is
// deadline_exceeded. Any other error of the handler stays, and so does a
// response. Of several interceptors, the one whose lock ended the context
// decides.
//
// A stream holds the lock from its start until its handler returns. If the
// KeyFunc returns [ErrNeedMessage], the lock is acquired when the handler
// receives the first message. Receive then returns a rejection, and the call
// ends with it, whatever the handler returns. Before the first message Send
// fails with failed_precondition, and the limiter's Observer is told of that
// once. The context of the handler carries the lock from the first message on.
//
// Once the lock is lost Receive and Send fail with aborted; the error matches
// [sqllock.ErrLost]. A Receive that already waits for the client goes on
// waiting. A handler that may wait for long must watch its context too.
//
// Health checks and server reflection are not limited ([WithAllServices]), and
// in a client the interceptor does nothing. No error, detail or header holds
// the key.
//
// New panics if l or key is nil.
func New(l *ratelimit.Limiter, key KeyFunc, opts ...Option) *Interceptor {
	return newInterceptor("New", []Level{{l, key}}, opts)
}

// newInterceptor makes the Interceptor of levels. caller is for panics.
func newInterceptor(caller string, levels []Level, opts []Option) *Interceptor {
	i := new(Interceptor)
	g := &i.guard
	g.Package, g.Route = "connectmw", "procedure"
	g.Own = ownError
	g.With = func(call Call, message any) Call {
		call.Message = message
		return call
	}
	rpclimit.Init(g, caller, levels)
	for _, opt := range opts {
		opt(i)
	}
	return i
}

// ownError returns the *connect.Error that err is or wraps.
func ownError(err error) (code.Code, error) {
	var own *connect.Error
	if !errors.As(err, &own) {
		return code.Code_OK, nil
	}
	return code.Code(own.Code()), own //nolint:gosec // the two have the same numbers
}

// failed returns s as an error. Each call gets one of its own, since an
// interceptor around may add to it.
func failed(s *rpclimit.Status) error {
	if s.Reason == admission.Chosen {
		return s.Err
	}
	text := error(s)
	if s.Err != nil {
		text = textError{s.Err, s.Text}
	}
	err := connect.NewError(connect.Code(s.Code), text) //nolint:gosec // the two have the same numbers
	for _, message := range s.Details {
		if detail, wrong := connect.NewErrorDetail(message); wrong == nil {
			err.AddDetail(detail) // better without details than not at all
		}
	}
	if s.Retry > 0 {
		err.Meta().Set("Retry-After", strconv.FormatInt(admission.Seconds(s.Retry), 10))
	}
	return err
}

// A textError is an error with another text.
type textError struct {
	error
	text string
}

func (e textError) Error() string { return e.text }
func (e textError) Unwrap() error { return e.error }

// WrapUnary limits unary calls of a handler.
func (i *Interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (resp connect.AnyResponse, err error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		call := Call{Spec: req.Spec(), Peer: req.Peer(), Header: req.Header(), Message: req.Any()}
		err = i.guard.Unary(ctx, call.Spec.Procedure, call, func(ctx context.Context) (err error) {
			resp, err = next(ctx, req)
			return err
		})
		if s, ok := err.(*rpclimit.Status); ok { //nolint:errorlint // Unary returns it as it is
			return nil, failed(s)
		}
		return resp, err
	}
}

// WrapStreamingHandler limits streams of a handler.
func (i *Interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if i.guard.Exempt(conn.Spec().Procedure) {
			return next(ctx, conn)
		}
		call := Call{Spec: conn.Spec(), Peer: conn.Peer(), Header: conn.RequestHeader()}
		s := &stream{conn, i.guard.NewStream(ctx, call.Spec.Procedure, call, failed)}
		return s.stream.Serve(func() error { return next(s.stream.Context(), s) })
	}
}

// WrapStreamingClient returns next: an interceptor limits handlers.
func (i *Interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// A stream is a stream behind the interceptor.
type stream struct {
	connect.StreamingHandlerConn
	stream *rpclimit.Stream[Call]
}

// Receive receives a message. With the first message of an undecided stream it
// acquires the locks.
func (s *stream) Receive(m any) error { return s.stream.Receive(m, s.StreamingHandlerConn.Receive) }

// Send sends a message of a stream that is admitted.
func (s *stream) Send(m any) error { return s.stream.Send(m, s.StreamingHandlerConn.Send) }
