package grpcmw

import (
	"log/slog"
	"time"
)

// An Option changes how the interceptors limit and reject calls.
type Option func(*guard)

// WithConflict makes the status of a call whose key is busy ABORTED instead of
// RESOURCE_EXHAUSTED. It is for keys that name a resource or a piece of work.
// Such a call conflicts with another one, and no quota is used up.
func WithConflict() Option {
	return func(g *guard) { g.Conflict = true }
}

// WithErrorDomain sets the domain of the ErrorInfo in a rejection. It is the
// name of the service, such as "export.example.com", by which clients know
// whose reasons they read. The default is "latchkey".
//
// WithErrorDomain panics if domain is empty.
func WithErrorDomain(domain string) Option {
	if domain == "" {
		panic("grpcmw: WithErrorDomain needs a domain")
	}
	return func(g *guard) { g.Domain = domain }
}

// WithPushback sets how long gRPC clients with a retry policy wait before they
// repeat a call whose key was busy. The default is the time in the status's
// RetryInfo.
//
// A rejection with a RetryInfo carries the trailer grpc-retry-pushback-ms.
// gRPC's own retries do not read RetryInfo. They obey the trailer instead of
// the policy's backoff; the policy still limits the attempts. While locks
// cannot be acquired, the trailer always has the time of RetryInfo. That differs
// from call to call, so that clients do not return at one moment.
//
// A call whose lock was lost may have had effects, and has no such trailer. A
// policy with ABORTED in its retryableStatusCodes repeats it all the same.
//
// A call whose deadline is earlier than that gets no such trailer, and the
// policy decides alone. Its client would wait for the deadline, and not read
// the rejection.
//
// A response header ends gRPC's own retries, so an interceptor before this one
// must not set any before the call is admitted.
//
// WithPushback panics if d is not positive. It counts in milliseconds, rounded
// up.
func WithPushback(d time.Duration) Option {
	if d <= 0 {
		panic("grpcmw: WithPushback needs a positive duration")
	}
	return func(g *guard) { g.pushback = d }
}

// WithBusyText sets the sentence of the status for a busy key. An example is
// "You can run one export at a time." The interceptor adds when to try again.
// The default names the limiter's namespace and its limit.
//
// The text must not hold a key. WithBusyText panics if text is empty.
func WithBusyText(text string) Option {
	if text == "" {
		panic("grpcmw: WithBusyText needs a text that is not empty")
	}
	return func(g *guard) { g.BusyText = text }
}

// WithAllServices limits every service of the server. By default health checks
// (grpc.health.v1.Health) and server reflection (grpc.reflection.v1 and
// v1alpha) are not limited: balancers and tools call them, without a user.
func WithAllServices() Option {
	return func(g *guard) { g.All = true }
}

// WithLogger sets where the interceptor reports what its operators should
// correct. The default is [slog.Default]. Each of these is reported at most
// once a minute for each method:
//
//   - A call has no key ([ErrNoKey]). The interceptor may be before the
//     authentication.
//   - A call needs two places of one limit. The limit may be on its road twice.
//   - A KeyFunc or the policy of a limit has failed. The error is in the line.
//
// WithLogger panics if log is nil.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("grpcmw: WithLogger needs a *slog.Logger that is not nil")
	}
	return func(g *guard) { g.Log = log }
}
