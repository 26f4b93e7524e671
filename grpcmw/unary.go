package grpcmw

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// UnaryServerInterceptor returns an interceptor that calls the handler if l
// admits the key of the call. Otherwise the call ends with a status:
//
//   - RESOURCE_EXHAUSTED, with ErrorInfo, RetryInfo and QuotaFailure, if the
//     key is busy; with [WithConflict] ABORTED, with ErrorInfo and RetryInfo.
//     The ErrorInfo's reason is CONCURRENCY_LIMIT_REACHED or CALL_IN_PROGRESS;
//   - UNAVAILABLE, with RetryInfo, if locks cannot be acquired now;
//   - INVALID_ARGUMENT if the call has no key, or a bad one. The text names the
//     field or the metadata entry that is missing;
//   - INTERNAL if the KeyFunc failed, as [KeyFunc] says, or the policy of the
//     limit ([ratelimit.ErrPolicy]);
//   - DEADLINE_EXCEEDED or CANCELLED if the call's context ended in the wait.
//
// If the lock is lost while the handler runs, and the handler returns its
// context's error, the status is ABORTED, with RetryInfo and ErrorInfo of
// reason LOCK_LOST. If [ratelimit.WithMaxHold] ended the context, it is
// DEADLINE_EXCEEDED. Any other error of the handler stays, and so does a
// response. Of several interceptors, the one whose lock ended the context
// decides.
//
// Health checks and server reflection are not limited ([WithAllServices]). No
// status, detail or trailer holds the key. To limit some methods only, wrap
// the interceptor in package selector of go-grpc-middleware.
//
// UnaryServerInterceptor panics if l or key is nil.
func UnaryServerInterceptor(l *ratelimit.Limiter, key KeyFunc, opts ...Option) grpc.UnaryServerInterceptor {
	return newGuard("UnaryServerInterceptor", []Level{{l, key}}, opts).unary()
}

// unary returns the interceptor of g.
func (g *guard) unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if g.exempt(info.FullMethod) {
			return handler(ctx, req)
		}
		setTrailer := func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) }
		var id identification
		_, rejected := g.identify(ctx, info.FullMethod, interceptors.NewServerCallMeta(info.FullMethod, nil, req), &id)
		if rejected != nil {
			return nil, g.reject(ctx, rejected, setTrailer)
		}
		held, rejected := g.admit(ctx, info.FullMethod, &id.wanted)
		if rejected != nil {
			return nil, g.reject(ctx, rejected, setTrailer)
		}
		// Deferred, so that a panic releases the locks, too. gRPC sends the
		// response after that, so the client's next call finds the keys free.
		defer func() { _ = held.Unlock() }() // a loss has ended the handler's context
		bound, cancel := held.Bind(ctx)
		defer cancel() // first, so that what the handler left behind ends before the lock
		resp, err := handler(bound, req)
		if interrupted := g.interruption(ctx, bound, &id.wanted, held, err); interrupted != nil {
			return nil, g.reject(ctx, interrupted, setTrailer)
		}
		return resp, err
	}
}
