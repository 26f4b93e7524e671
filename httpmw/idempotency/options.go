package idempotency

import (
	"database/sql"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/admission"
)

// An Option changes a [Middleware].
type Option func(*Middleware)

// WithLogger sets where the Middleware reports its failures, keys that come
// with two payloads, and mistakes in how it is wired. The default is
// [slog.Default]. Nothing that is logged holds a key, a principal, a host or a
// connection string.
//
// WithLogger panics if log is nil.
func WithLogger(log *slog.Logger) Option {
	if log == nil {
		panic("idempotency: WithLogger needs a *slog.Logger that is not nil")
	}
	return func(m *Middleware) { m.log = log }
}

// WithRejection changes the responses to rejected requests, by options of
// package httpmw such as [httpmw.WithRejectHandler] and
// [httpmw.WithProblemType]. Two of them change nothing here:
// [httpmw.WithConflict], since a request in flight is 409 already, and
// [httpmw.WithLogger], in whose place is [WithLogger].
func WithRejection(opts ...httpmw.Option) Option {
	return func(m *Middleware) { m.rejects = append(m.rejects, opts...) }
}

// WithRoute sets how to find the route that a key counts for. The default is
// the pattern of [http.ServeMux]. WithRoute is for other routers, and for a
// Middleware around the mux. The route must stay the same from one release to
// the next, or retries take effect again. A request without a route is 500
// ([ErrNoRoute]). Two mounts of an inner mux are one route, with the pattern of
// the inner one. WithRoute panics if route is nil.
func WithRoute(route httpmw.KeyFunc) Option {
	if route == nil {
		panic("idempotency: WithRoute needs a KeyFunc that is not nil")
	}
	return func(m *Middleware) { m.route = route }
}

// WithKey sets how to find the key. The default is the header Idempotency-Key.
// WithKey is for requests that have an id of their own, such as the id of a
// webhook's event after a check of its signature. The key may have any length.
// If key returns [httpmw.ErrNoKey], the method decides, as without the header.
// WithKey panics if key is nil.
func WithKey(key httpmw.KeyFunc) Option {
	if key == nil {
		panic("idempotency: WithKey needs a KeyFunc that is not nil")
	}
	return func(m *Middleware) {
		m.key, m.keyDetail = key, admission.NoKeyDetail
	}
}

// WithOptionalKey passes every request without a key on to the handler, also
// POST and PATCH. It is for an API in use, whose clients begin to send keys one
// after the other. Such a request is not limited, and a retry of it takes
// effect again. [Tx] reports false for it, so its handler must begin a
// transaction itself.
func WithOptionalKey() Option {
	return func(m *Middleware) { m.keyOptional = true }
}

// WithFingerprintHeaders adds header fields to what must be the same when a key
// comes again. Add fields that change what the request does, and none that
// differ from one retry to the next. If-Match, X-HTTP-Method-Override and
// Content-Type are always compared. It panics if there are no names, or one is
// empty.
func WithFingerprintHeaders(names ...string) Option {
	if len(names) == 0 {
		panic("idempotency: WithFingerprintHeaders needs at least one name")
	}
	canonical := make([]string, len(names))
	for i, name := range names {
		if name == "" {
			panic("idempotency: WithFingerprintHeaders needs names that are not empty")
		}
		canonical[i] = http.CanonicalHeaderKey(name)
	}
	return func(m *Middleware) {
		m.fields = append(m.fields, canonical...)
		slices.Sort(m.fields)
		m.fields = slices.Compact(m.fields)
	}
}

// WithMaxBody sets how many bytes the body of a request may have. The body is
// read into memory. The default is 1 MiB. WithMaxBody panics if n is not
// positive.
func WithMaxBody(n int64) Option {
	if n <= 0 {
		panic("idempotency: WithMaxBody needs a positive number of bytes")
	}
	return func(m *Middleware) { m.maxBody = n }
}

// WithMaxResponse sets how many bytes the body of a response may have. The body
// is buffered and stored. The default is 1 MiB. WithMaxResponse panics if n is
// not positive.
func WithMaxResponse(n int) Option {
	if n <= 0 {
		panic("idempotency: WithMaxResponse needs a positive number of bytes")
	}
	return func(m *Middleware) { m.maxResponse = n }
}

// WithStoredErrors stores a response whose status is 400 or more if store
// reports true for the status. A retry then gets that response. The effect is
// rolled back either way.
//
// The default stores only 402 Payment Required, the one 4xx that reports the
// outcome of an operation. After any other the same key works for a corrected
// or a later request. Store more if the handler has effects outside of its
// transaction that must not be repeated after an error.
//
// Never stored is an error that the handler writes after its context has ended.
// store must be safe for concurrent use. WithStoredErrors panics if store is nil.
func WithStoredErrors(store func(status int) bool) Option {
	if store == nil {
		panic("idempotency: WithStoredErrors needs a func that is not nil")
	}
	return func(m *Middleware) { m.storeError = store }
}

// WithTxOptions sets how the handler's transaction begins, such as its
// isolation level. The default is the database's. After a serialization failure
// at the commit the response is 503, and the retry runs the handler again.
// WithTxOptions panics if opts is read-only.
func WithTxOptions(opts sql.TxOptions) Option {
	if opts.ReadOnly {
		panic("idempotency: WithTxOptions needs a transaction that is not read-only")
	}
	return func(m *Middleware) { m.responses.txOptions = opts }
}

// WithMaxIdle sets how long the handler's transaction may be idle between two
// statements. After that the server rolls it back, and the key is free. So a
// process that is frozen, or cut off, does not keep its key for ever. The
// default is a minute, which is longer than most servers give a request.
//
// PostgreSQL counts whole milliseconds (idle_in_transaction_session_timeout).
// MySQL and MariaDB count whole seconds, rounded up (wait_timeout). A stricter
// setting of the server stays. SQLite has no such bound: a frozen process keeps
// the file's only write lock until it goes on or ends.
//
// WithMaxIdle panics if d is less than a millisecond, or more than 24 days.
func WithMaxIdle(d time.Duration) Option {
	if d < time.Millisecond || d > 24*24*time.Hour { // PostgreSQL's largest setting
		panic("idempotency: WithMaxIdle needs a millisecond to 24 days")
	}
	return func(m *Middleware) { m.responses.maxIdle = d }
}
