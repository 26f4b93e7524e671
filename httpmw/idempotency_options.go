package httpmw

import (
	"database/sql"
	"log/slog"
)

// An IdempotencyOption changes an [Idempotency]. Each [Option] is one, as far as it
// is about how requests are refused; 409 is always the answer to one in flight.
type IdempotencyOption interface{ idempotency(i *Idempotency) }

func (o Option) idempotency(i *Idempotency) { o(i.refusals) }

type idempotencyOption func(*Idempotency)

func (o idempotencyOption) idempotency(i *Idempotency) { o(i) }

// WithRoute finds the route that a key counts for, in place of the pattern that
// an [http.ServeMux] has found: for other routers, and for an Idempotency around the
// mux. The route must not change from one release to the next: retries would
// be done again. A request without one is answered 500, by [ErrNoRoute].
//
// It panics if route is nil.
func WithRoute(route KeyFunc) IdempotencyOption {
	if route == nil {
		panic("httpmw: WithRoute needs a KeyFunc that is not nil")
	}
	return idempotencyOption(func(i *Idempotency) { i.route = route })
}

// WithMaxBody sets how many bytes the body of a request may have, which is read into
// memory: 1 MiB by default. It panics if n is not positive.
func WithMaxBody(n int64) IdempotencyOption {
	if n <= 0 {
		panic("httpmw: WithMaxBody needs a positive number of bytes")
	}
	return idempotencyOption(func(i *Idempotency) { i.maxBody = n })
}

// WithMaxAnswer sets how many bytes the body of an answer may have, which is
// buffered and stored: 1 MiB by default. It panics if n is not positive.
func WithMaxAnswer(n int) IdempotencyOption {
	if n <= 0 {
		panic("httpmw: WithMaxAnswer needs a positive number of bytes")
	}
	return idempotencyOption(func(i *Idempotency) { i.maxAnswer = n })
}

// WithTxOptions sets how the handler's transaction is begun, such as its
// isolation; by default as the database has it. A serialization failure at its
// commit is answered 503: the retry runs the handler again.
func WithTxOptions(opts sql.TxOptions) IdempotencyOption {
	return idempotencyOption(func(i *Idempotency) { i.answers.txOptions = opts })
}

// WithLogger sets where keys that come with two payloads and failures are
// reported; slog.Default() is the default. Nothing logged holds a key, a
// principal, a host or a connection string. It panics if log is nil.
func WithLogger(log *slog.Logger) IdempotencyOption {
	if log == nil {
		panic("httpmw: WithLogger needs a *slog.Logger that is not nil")
	}
	return idempotencyOption(func(i *Idempotency) { i.log = log })
}
