// Package grpcmw admits gRPC calls one at a time per user or resource, across
// every instance of a service. It rejects the rest with a status that says when to
// try again.
//
//	limit := ratelimit.OneAtATime(session, "export")
//	user := grpcmw.FromContext(auth.User) // func(context.Context) (string, bool)
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(authenticate, grpcmw.UnaryServerInterceptor(limit, user)),
//		grpc.ChainStreamInterceptor(authenticateStream, grpcmw.StreamServerInterceptor(limit, user)),
//	)
//
// The handler's context carries the lock ([sqllock.FromContext]) and ends with
// the call or with the loss of the lock, whichever comes first; then its cause
// is [sqllock.ErrLost]. The lock goes back when the handler returns or panics,
// before the client learns how the call ended.
//
// An interceptor that recovers panics belongs before this one, one that limits
// the handler's time after it.
package grpcmw
