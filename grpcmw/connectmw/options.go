package connectmw

import "log/slog"

// An Option changes how the interceptor limits and rejects calls.
type Option func(*Interceptor)

// WithConflict makes the code of a call whose key is busy aborted instead of
// resource_exhausted. It is for keys that name a resource or a piece of work.
// Such a call conflicts with another one, and no quota is used up.
func WithConflict() Option {
	return func(i *Interceptor) { i.guard.Conflict = true }
}

// WithErrorDomain sets the domain of the ErrorInfo in a rejection. It is the
// name of the service, such as "export.example.com", by which clients know
// whose reasons they read. The default is "latchkey".
//
// WithErrorDomain panics if domain is empty.
func WithErrorDomain(domain string) Option {
	if domain == "" {
		panic("connectmw: WithErrorDomain needs a domain")
	}
	return func(i *Interceptor) { i.guard.Domain = domain }
}

// WithBusyText sets the sentence of the error for a busy key. An example is
// "You can run one export at a time." The interceptor adds when to try again.
// The default names the limiter's namespace and its limit.
//
// The text must not hold a key. WithBusyText panics if text is empty.
func WithBusyText(text string) Option {
	if text == "" {
		panic("connectmw: WithBusyText needs a text that is not empty")
	}
	return func(i *Interceptor) { i.guard.BusyText = text }
}

// WithAllServices limits every service. By default health checks
// (grpc.health.v1.Health) and server reflection (grpc.reflection.v1 and
// v1alpha) are not limited: balancers and tools call them, without a user.
func WithAllServices() Option {
	return func(i *Interceptor) { i.guard.All = true }
}

// WithLogger sets where the interceptor reports what its operators should
// correct. The default is [slog.Default]. Each of these is reported at most
// once a minute for each procedure:
//
//   - A call has no key ([ErrNoKey]). The interceptor may be before the
//     authentication.
//   - A call needs two places of one limit. The limit may be on its road twice.
//   - A KeyFunc or the policy of a limit has failed. The error is in the line.
//
// WithLogger panics if log is nil.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("connectmw: WithLogger needs a *slog.Logger that is not nil")
	}
	return func(i *Interceptor) { i.guard.Log = log }
}
