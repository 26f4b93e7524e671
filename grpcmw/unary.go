package grpcmw

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
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
//     limit ([ratelimit.ErrPolicy]), or if the message has no such [Field];
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
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		call := interceptors.NewServerCallMeta(info.FullMethod, nil, req)
		err = g.Unary(ctx, info.FullMethod, call, func(ctx context.Context) (err error) {
			resp, err = handler(ctx, req)
			return err
		})
		if s, ok := err.(*rpclimit.Status); ok { //nolint:errorlint // Unary returns it as it is
			return nil, g.failed(ctx, s, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
		}
		return resp, err
	}
}
