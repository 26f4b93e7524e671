// Package grpcmw puts a [ratelimit.Limiter] in front of a gRPC server:
//
//	limit := ratelimit.OneAtATime(session, "export")
//	user := grpcmw.FromContext(auth.User) // func(context.Context) (string, bool)
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(authenticate, grpcmw.UnaryServerInterceptor(limit, user)),
//		grpc.ChainStreamInterceptor(authenticateStream, grpcmw.StreamServerInterceptor(limit, user)),
//	)
//
// While a call of a user is served, a second one ends with RESOURCE_EXHAUSTED,
// from any instance. The status says when to try again.
//
// The handler's context carries the lock ([sqllock.FromContext]). It ends with
// the call, or with cause [sqllock.ErrLost] when the lock is lost. The lock is
// released when the handler returns or panics, before the client learns how the
// call ended.
//
// [UnaryStackInterceptor] and [StreamStackInterceptor] apply several limits at
// once, such as those per user and in total.
//
// An interceptor that recovers panics belongs before this one. One that limits
// the handler's time belongs after it.
package grpcmw
