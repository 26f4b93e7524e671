package connectmw

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/internal/wiring"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// An Interceptor calls a handler only if its limit admits the key of the call.
// Make one with [New] or [NewStack]. It is safe for concurrent use.
type Interceptor struct {
	levels   []Level
	conflict bool
	domain   string
	busyText string // "" for the limit's name and size
	all      bool   // limits health checks and reflection, too

	log     *slog.Logger // nil for slog.Default
	reports wiring.Reports
}

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
//     limit ([ratelimit.ErrPolicy]);
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
// once, through Refused. The context of the handler carries the lock from the
// first message on.
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

// newInterceptor makes the Interceptor of levels, which it keeps. name is for
// panics.
func newInterceptor(name string, levels []Level, opts []Option) *Interceptor {
	if len(levels) == 0 {
		panic("connectmw: " + name + " needs at least one Level")
	}
	for _, level := range levels {
		switch {
		case level.Limiter == nil:
			panic("connectmw: " + name + " needs a limiter that is not nil")
		case level.Key == nil:
			panic("connectmw: " + name + " needs a KeyFunc that is not nil")
		}
	}
	i := &Interceptor{levels: levels, domain: "latchkey"}
	for _, opt := range opts {
		opt(i)
	}
	return i
}

// WrapUnary limits unary calls of a handler.
func (i *Interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient || i.exempt(req.Spec()) {
			return next(ctx, req)
		}
		call := Call{Spec: req.Spec(), Peer: req.Peer(), Header: req.Header(), Message: req.Any()}
		var id identification
		if _, rejection := i.identify(ctx, call, &id); rejection != nil {
			return nil, rejection
		}
		held, err := i.admit(ctx, call, &id.wanted)
		if err != nil {
			return nil, err
		}
		// Deferred, so that a panic releases the locks, too. The response is sent
		// after that, so the client's next call finds the keys free.
		defer func() { _ = held.Unlock() }() // a loss has ended the handler's context
		bound, cancel := held.Bind(ctx)
		defer cancel() // first, so that what the handler left behind ends before the lock
		resp, err := next(bound, req)
		if interrupted := i.interruption(ctx, bound, &id.wanted, held, err); interrupted != nil {
			return nil, interrupted
		}
		return resp, err
	}
}

// WrapStreamingHandler limits streams of a handler.
func (i *Interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if i.exempt(conn.Spec()) {
			return next(ctx, conn)
		}
		s := newStream(ctx, i, conn)
		defer s.stream.End()
		if err := s.begin(); err != nil {
			return err
		}
		err := next(s.stream.Context(), s)
		if rejection := s.stream.Rejection(); rejection != nil {
			return rejection
		}
		if interrupted := s.interruption(err); interrupted != nil {
			return interrupted
		}
		return err
	}
}

// WrapStreamingClient returns next: an interceptor limits handlers.
func (i *Interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// exempt reports whether calls of spec are not limited.
func (i *Interceptor) exempt(spec connect.Spec) bool {
	return !i.all && rpclimit.Unlimited(spec.Procedure)
}
