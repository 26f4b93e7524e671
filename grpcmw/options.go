package grpcmw

import (
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
)

// An Option changes how the interceptors answer calls that they refuse.
type Option func(*guard)

// WithConflict answers a call whose key is busy with ABORTED, in place of
// RESOURCE_EXHAUSTED: for keys that name a resource or a piece of work (an
// idempotency key), where "in conflict with another call" is nearer to the
// truth than "your quota is used up".
func WithConflict() Option {
	return func(g *guard) { g.conflict = true }
}

// WithErrorDomain sets the domain of the ErrorInfo in a refusal: the name of
// the service, such as "export.example.com", by which clients know whose reasons
// they read. The default is "latchkey".
//
// WithErrorDomain panics if domain is empty.
func WithErrorDomain(domain string) Option {
	if domain == "" {
		panic("grpcmw: WithErrorDomain needs a domain")
	}
	return func(g *guard) { g.domain = domain }
}

// WithPushback tells gRPC clients with a retry policy to wait for d before the
// next attempt, in place of their own backoff: a refusal whose RetryInfo says
// that trying again may help gets the trailer grpc-retry-pushback-ms; a status of
// a KeyFunc's own does not. The policy's limit on attempts still holds. Without it the policy decides alone,
// as gRPC's own retries do not read RetryInfo.
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
	ms := (d-1)/time.Millisecond + 1
	return func(g *guard) {
		g.pushback = metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(int64(ms), 10))
	}
}
