package grpcmw

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// StreamServerInterceptor is [UnaryServerInterceptor] for streams: the lock is
// held from the stream's start until its handler returns.
//
// If the KeyFunc returns [ErrNeedMessage], the lock is acquired when the
// handler receives the first message, in RecvMsg. The stream may be rejected
// then, or end without a message. RecvMsg then returns the rejection, and the
// stream's context ends. The call ends with the rejection, whatever the handler
// returns.
//
// Before the first message the stream has no lock. SendMsg fails with
// FAILED_PRECONDITION, and the limiter's Observer is told of that once. The
// handler should begin no work that the lock is for, and send no headers, which
// end gRPC's own retries. A context that it took from the stream before carries
// the lock from then on, and ends on its loss.
//
// Once the lock is lost RecvMsg and SendMsg fail with ABORTED; the error
// matches [sqllock.ErrLost]. A handler that returns that error, or its
// context's, ends the call with ABORTED and RetryInfo. A RecvMsg that already
// waits for the client goes on waiting. A handler that may wait for long must
// watch its context too.
//
// StreamServerInterceptor panics if l or key is nil.
func StreamServerInterceptor(l *ratelimit.Limiter, key KeyFunc, opts ...Option) grpc.StreamServerInterceptor {
	return newGuard("StreamServerInterceptor", []Level{{l, key}}, opts).stream()
}

// stream returns the interceptor of g.
func (g *guard) stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if g.Exempt(info.FullMethod) {
			return handler(srv, ss)
		}
		failed := func(s *rpclimit.Status) error { return g.failed(ss.Context(), s, ss.SetTrailer) }
		call := interceptors.NewServerCallMeta(info.FullMethod, info, nil)
		s := &stream{ss, g.NewStream(ss.Context(), info.FullMethod, call, failed)}
		return s.Serve(func() error { return handler(srv, s) })
	}
}

// A stream is a stream behind the interceptor.
type stream struct {
	grpc.ServerStream
	*rpclimit.Stream[interceptors.CallMeta]
}

// Context returns the same context before and after the first message.
func (s *stream) Context() context.Context { return s.Stream.Context() }

// RecvMsg receives a message. With the first message of an undecided stream it
// acquires the locks.
func (s *stream) RecvMsg(m any) error { return s.Receive(m, s.ServerStream.RecvMsg) }

// SendMsg sends a message of a stream that is admitted.
func (s *stream) SendMsg(m any) error { return s.Send(m, s.ServerStream.SendMsg) }
