package httpmw

import (
	"database/sql"
	"maps"
	"net/http"
	"slices"
	"time"
)

// An IdempotencyOption changes an [Idempotency]. An [Option] of a [Middleware] is one,
// too: it changes how requests are refused, but for [WithConflict], without which
// the answer to one in flight is 409 already.
type IdempotencyOption interface{ idempotency(i *Idempotency) }

func (o Option) idempotency(i *Idempotency) { o(i.refusals) }

type idempotencyOption func(*Idempotency)

func (o idempotencyOption) idempotency(i *Idempotency) { o(i) }

// WithRoute finds the route that a key counts for, in place of the pattern of
// [http.ServeMux]. It is for other routers, and for an Idempotency around the mux.
// The route must stay the same from one release to the next, or retries take effect
// again. A request without a route is 500 ([ErrNoRoute]).
//
// With a mux inside of a mux the pattern is that of the inner one, so two mounts of
// an inner mux are one route. A key that is used under both is rejected with 422. If
// clients may do that, pass a route that has the outer prefix.
//
// WithRoute panics if route is nil.
func WithRoute(route KeyFunc) IdempotencyOption {
	if route == nil {
		panic("httpmw: WithRoute needs a KeyFunc that is not nil")
	}
	return idempotencyOption(func(i *Idempotency) { i.route = route })
}

// WithKey finds the key by key in place of the header Idempotency-Key. It is for
// requests that have an id of their own, such as the id of a webhook's event, if
// its signature has been checked. The key may have any length. If key returns
// [ErrNoKey], the method decides, as without the header. Where responses need not
// be kept, a table of the ids alone will do: see examples/webhook.
//
// WithKey panics if key is nil.
func WithKey(key KeyFunc) IdempotencyOption {
	if key == nil {
		panic("httpmw: WithKey needs a KeyFunc that is not nil")
	}
	return idempotencyOption(func(i *Idempotency) {
		i.key = key
		i.refusals.details = maps.Clone(idempotencyDetails)
		delete(i.refusals.details, badKey) // it tells of the header
	})
}

// WithOptionalKey passes every request without a key on to the handler, POST and
// PATCH too. It is for an API in use, whose clients begin to send keys one after
// the other. Such a request is not limited, and a retry of it takes effect again.
// [EffectTx] reports false for it, so that its handler begins a transaction itself.
func WithOptionalKey() IdempotencyOption {
	return idempotencyOption(func(i *Idempotency) { i.keyOptional = true })
}

// WithFingerprintHeaders adds header fields to what must be the same when a key
// comes again: fields that change what the request does. If-Match and
// X-HTTP-Method-Override always belong to it, and so does Content-Type. A request
// that has other values of them, or has one of them more or less, is rejected with
// 422.
//
// Leave out fields that change only how the response looks, such as Accept. Leave
// out fields that differ from one retry to the next, such as trace ids.
//
// It panics if there are no names or one is empty.
func WithFingerprintHeaders(names ...string) IdempotencyOption {
	if len(names) == 0 {
		panic("httpmw: WithFingerprintHeaders needs a name at least")
	}
	canonical := make([]string, len(names))
	for i, name := range names {
		mustName("WithFingerprintHeaders", name)
		canonical[i] = http.CanonicalHeaderKey(name)
	}
	return idempotencyOption(func(i *Idempotency) {
		i.fields = append(i.fields, canonical...)
		slices.Sort(i.fields)
		i.fields = slices.Compact(i.fields)
	})
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

// WithStoredErrors stores a response whose status is 400 or more if store reports
// true for the status. A retry then gets that response. The effect is rolled back
// either way.
//
// The default stores 402 Payment Required alone. It is the one 4xx that reports
// the outcome of an operation: to charge a declined card again is a second
// charge. Every other 4xx reports something that may change: the request, the
// client's rights, or the state of a resource. A corrected request, or one that is
// sent later, then works with the same key. Store more if the handler has effects
// outside of its transaction that must not be repeated after an error.
//
// Some responses are never stored: 421, 444, 449, 460 and 499, and every error
// that the handler writes after its context has ended. For these, and for a
// response below 400, store is not called.
//
// store must be safe for concurrent use. WithStoredErrors panics if store is nil.
func WithStoredErrors(store func(status int) bool) IdempotencyOption {
	if store == nil {
		panic("httpmw: WithStoredErrors needs a func that is not nil")
	}
	return idempotencyOption(func(i *Idempotency) { i.storeError = store })
}

// WithTxOptions sets how the handler's transaction is begun, such as its
// isolation; by default as the database has it. A serialization failure at its
// commit is answered 503: the retry runs the handler again. An isolation that the
// driver does not know is 500 for every request, and the log says so. It panics if
// opts is read-only: the answer is written in that transaction.
func WithTxOptions(opts sql.TxOptions) IdempotencyOption {
	if opts.ReadOnly {
		panic("httpmw: WithTxOptions needs a transaction that is not read-only")
	}
	return idempotencyOption(func(i *Idempotency) { i.answers.txOptions = opts })
}

// WithMaxIdle sets how long the handler's transaction may be idle, that is between two
// statements: a minute by default, which is longer than most servers give a request. The
// server then rolls it back, and the key is free. So a process that is frozen, or cut
// off, does not keep its key for ever.
//
// PostgreSQL counts whole milliseconds (idle_in_transaction_session_timeout), MySQL and
// MariaDB whole seconds, rounded up (wait_timeout). A stricter setting of the server
// stays. SQLite has no such bound: a frozen process keeps the file's only write lock until
// it goes on or ends.
//
// It panics if d is less than a millisecond.
func WithMaxIdle(d time.Duration) IdempotencyOption {
	if d < time.Millisecond {
		panic("httpmw: WithMaxIdle needs a millisecond at least")
	}
	return idempotencyOption(func(i *Idempotency) { i.answers.maxIdle = d })
}
