package grpcmw

import (
	"errors"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// StreamServerInterceptor is [UnaryServerInterceptor] for streams: the lock is
// held from the stream's start until its handler returns.
//
// If the KeyFunc answers [ErrNeedMessage], the lock is taken when the handler
// receives the first message, in RecvMsg. If the stream is refused then, or ends
// without a message, RecvMsg returns the refusal, the stream's context ends, and
// the refusal is how the call ends, whatever the handler returns. Before the
// first message the stream has no lock, and so SendMsg fails with
// FAILED_PRECONDITION, which the limiter's Observer is told of once, through Refused,
// besides how the stream is decided; the handler should not begin any other work that the
// lock is for, nor send headers, which end gRPC's own retries. A context that it
// has taken from the stream before carries the lock, and ends on its loss, from
// then on.
//
// Once the lock is lost RecvMsg and SendMsg fail with ABORTED; the error matches
// [sqllock.ErrLost]. A handler that returns it, or its context's error, ends the
// call with ABORTED and RetryInfo. A RecvMsg that already waits for the client goes on
// waiting: a handler that may wait for long watches its context beside it.
//
// StreamServerInterceptor panics if l or key is nil.
func StreamServerInterceptor(l *ratelimit.Limiter, key KeyFunc, opts ...Option) grpc.StreamServerInterceptor {
	g := newGuard("StreamServerInterceptor", l, key, opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if g.exempt(info.FullMethod) {
			return handler(srv, ss)
		}
		s := newStream(g, ss, interceptors.NewServerCallMeta(info.FullMethod, info, nil))
		defer s.end()
		id, err := g.key(ss.Context(), s.call)
		if !errors.Is(err, ErrNeedMessage) {
			if err := s.admit(id, err); err != nil {
				return err
			}
		}
		err = handler(srv, s)
		if refusal := s.refusal(); refusal != nil {
			return refusal
		}
		if interrupted := g.interruption(s.ctx, err); interrupted != nil {
			return g.refuse(interrupted, ss.SetTrailer)
		}
		return err
	}
}
