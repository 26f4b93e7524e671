// Package connectmw puts a [ratelimit.Limiter] in front of services of
// connect-go, for the protocols Connect, gRPC and gRPC-Web:
//
//	limit := ratelimit.OneAtATime(session, "export")
//	user := connectmw.FromContext(auth.User) // func(context.Context) (string, bool)
//	path, handler := exportv1connect.NewExportServiceHandler(service,
//		connect.WithInterceptors(authenticate, connectmw.New(limit, user)))
//
// While a call of a user is served, a second one ends with resource_exhausted,
// from any instance. The error says when to try again.
//
// The handler's context carries the lock ([sqllock.FromContext]). It ends with
// the call, or with cause [sqllock.ErrLost] when the lock is lost. The lock is
// released when the handler returns or panics, before the client learns how the
// call ended.
//
// A middleware of net/http in front of the service cannot do this. A Connect
// client reads its status 429 as unavailable and its 409 as unknown, a gRPC
// client reads no details, and no stream has its messages seen.
package connectmw
