package httpmw

import (
	"log/slog"
	"net/http"
)

// An Option changes how a [Middleware] responds and what it logs.
type Option func(*Middleware)

// WithConflict makes the response to a busy key 409 Conflict instead of 429 Too
// Many Requests. It is for keys that name a resource: the client has not sent
// too many requests, but collides with another one.
func WithConflict() Option {
	return func(m *Middleware) { m.conflict = true }
}

// WithBusyText sets the sentence that a person reads when the limit is full. An
// example is "You can run one export at a time." The Middleware adds when to
// try again. The default names the limiter's namespace and its limit. Behind
// [NewStack] the text stands for every level.
//
// The text must not hold an id. WithBusyText panics if text is empty.
func WithBusyText(text string) Option {
	if text == "" {
		panic("httpmw: WithBusyText needs a text that is not empty")
	}
	return func(m *Middleware) { m.busyText = text }
}

// WithRejectHandler makes f write the responses to rejected and interrupted
// requests. err is the error of [Middleware.AcquireAll], or [ErrInterrupted].
// Compare it by errors.Is with [ratelimit.ErrBusy] and others. The headers
// Cache-Control and Retry-After are set already, and f may change them. If f
// writes nothing, the Middleware's own response is sent.
//
// f must be safe for concurrent use. WithRejectHandler panics if f is nil.
func WithRejectHandler(f func(w http.ResponseWriter, r *http.Request, err error)) Option {
	if f == nil {
		panic("httpmw: WithRejectHandler needs a func that is not nil")
	}
	return func(m *Middleware) { m.rejectHandler = f }
}

// WithProblemType sets the "type" of the problem for a busy key. That is a URI
// by which clients recognize it, best the address of its documentation. The
// default is about:blank, which means that the status says everything. All
// other problems are about:blank.
//
// WithProblemType panics if uri is empty.
func WithProblemType(uri string) Option {
	if uri == "" {
		panic("httpmw: WithProblemType needs a URI that is not empty")
	}
	return func(m *Middleware) { m.problemType = uri }
}

// WithRateLimitHeaders adds the fields RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers to the response for a busy key:
//
//	RateLimit-Policy: "export";q=1;qu="concurrent-requests"
//	RateLimit: "export";r=0;t=3
//
// The policy is named for the limiter's namespace (or "default", if that is not
// printable ASCII); t is Retry-After. Behind [NewStack] the fields are about the
// level that is full.
func WithRateLimitHeaders() Option {
	return func(m *Middleware) { m.rateLimitHeaders = true }
}

// WithLogger sets where the Middleware reports what its operators should
// correct. The default is [slog.Default]. Each of these is reported at most
// once a minute for each route:
//
//   - A request has no key ([ErrNoKey]). The Middleware may be outside of the
//     authentication, or of the router that sets path values.
//   - A request needs two places of one limit. The limit may be on its road
//     twice.
//   - [http.TimeoutHandler] is inside of the Middleware and has responded. Its
//     handler may still run without a lock.
//   - A KeyFunc has failed with an error of its own. That error is in the line.
//   - The policy of a limit has failed ([ratelimit.ErrPolicy]), likewise.
//
// The Middleware itself logs no key. The error of a KeyFunc must hold none.
//
// WithLogger panics if log is nil.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("httpmw: WithLogger needs a *slog.Logger that is not nil")
	}
	return func(m *Middleware) { m.gate.Log = log }
}
