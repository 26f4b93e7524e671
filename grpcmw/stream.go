package grpcmw

import (
	"google.golang.org/grpc"

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
// FAILED_PRECONDITION, and the limiter's Observer is told of that once, through
// Refused. The handler should begin no work that the lock is for, and send no
// headers, which end gRPC's own retries. A context that it took from the stream
// before carries the lock from then on, and ends on its loss.
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
		if g.exempt(info.FullMethod) {
			return handler(srv, ss)
		}
		s := newStream(g, ss, info)
		defer s.End()
		if err := s.begin(); err != nil {
			return err
		}
		err := handler(srv, s)
		if rejection := s.Rejection(); rejection != nil {
			return rejection
		}
		if interrupted := s.interruption(err); interrupted != nil {
			return g.reject(ss.Context(), interrupted, ss.SetTrailer)
		}
		return err
	}
}
