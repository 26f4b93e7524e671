// Package httpmw puts a [ratelimit.Limiter] in front of a net/http handler:
//
//	exports := ratelimit.OneAtATime(session, "export")
//	perUser := httpmw.New(exports, httpmw.FromContext(auth.UserID))
//	mux.Handle("POST /export", authenticate(perUser.Handler(export)))
//
// While a request of a user is served, a second one gets 429 Too Many Requests,
// from any instance. [WithConflict] makes that 409 Conflict. A [KeyFunc] finds
// the user in a request. Build it on an identity that the server has verified:
// a client that chooses its key can block another client.
//
// [NewStack] applies several limits at once, such as those per user, per tenant
// and in total. Package idempotency, below this one, is for the header
// Idempotency-Key.
package httpmw

import (
	"context"
	"net/http"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Middleware admits requests by the Limiters of its levels, and responds to
// those that it rejects. It is made by [New] or [NewStack] and is safe for
// concurrent use.
type Middleware struct {
	levels []Level

	conflict         bool
	problemType      string
	rateLimitHeaders bool
	rejectHandler    func(w http.ResponseWriter, r *http.Request, err error) // nil for problem+json
	busyText         string                                                  // "" for the limit's name and size

	gate admission.Gate
}

// New returns a Middleware that admits a request if l admits the id that key
// finds in it. New panics if l or key is nil.
func New(l *ratelimit.Limiter, key KeyFunc, opts ...Option) *Middleware {
	return newMiddleware("New", []Level{{l, key}}, opts)
}

// Handler returns next behind the Limiters. [Middleware.Reject] responds to a
// request that is not admitted.
//
// The context of next carries the lock of each level ([sqllock.FromContext]).
// It ends with the request. It also ends when a lock is lost, and
// [context.Cause] then returns [sqllock.ErrLost], [sqllock.ErrClosed] after the
// Close of its Session, or [ratelimit.ErrMaxHold] after too long a hold. From
// then on Read of the request body fails with that cause. So does a Read that waits
// for a slow client, if the ResponseWriter can set a read deadline. A Write to
// a slow client is bounded only by [http.Server.WriteTimeout]. If next returns
// after the end of its context and has written nothing, the response is 503:
// see [ErrInterrupted].
//
// While its context lives, a handler that returns without having written sends
// 200 OK, as with net/http. So next must write a response to each of its own
// errors: for example to that of [sqllock.Fence] or of a Commit. The loss of a
// lock after the first byte cannot change the status. Then next should stop
// writing and panic with [http.ErrAbortHandler], which cuts the response off.
//
// Handler releases the locks when next returns or panics. The client never has
// the whole response before that, unless next has hijacked the connection, or
// has flushed a response to HEAD. The ResponseWriter keeps back what would
// complete a response earlier: the last byte of a body with a Content-Length,
// and the Flush of a response without a body. The rest is sent as next writes
// it. After an early Unlock of all locks nothing is kept back: the byte goes out
// with the next Write or Flush, or when next returns. The ResponseWriter of next
// has the optional interfaces of net/http's own. Others are reached with
// [http.ResponseController].
//
// The server notices over HTTP/1 only after it has read the body that a client
// has left. So a body of known length up to 64 KiB is read before the request
// waits, in the time of [ratelimit.WithWait]. With a longer body, chunks or
// "Expect: 100-continue" a client that leaves keeps its place in line for that
// time. In next the server does not notice it before next has read the body.
//
// Put Handler inside of [http.TimeoutHandler], which responds while its handler
// still runs: TimeoutHandler(m.Handler(h)). Otherwise the next request overlaps
// with that handler, which is logged ([WithLogger]). If the key is a
// [PathValue], put Handler inside of [http.ServeMux].
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("httpmw: Handler needs an http.Handler that is not nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.handle(w, r, next)
	})
}

// AcquireAll admits r, or returns why not. It is for frameworks in which
// [Middleware.Handler] does not fit; examples/routers puts Handler into gin and
// echo. Its errors are those of [ratelimit.AcquireAll] and of the KeyFuncs.
// [Middleware.Reject] writes the response to each.
//
// It returns one lock for each level that limits r, in the order of the levels.
// A lock is nil if its level admits r without one. If no level needs one, the
// Locks may be nil. Bind and Unlock of the Locks work in each case.
//
// AcquireAll has no ResponseWriter, so it lacks what Handler does with one:
//
//   - the client may have a whole response before the locks are released;
//   - a handler that was interrupted has no response of its own;
//   - over HTTP/1 a waiting request with a body does not notice that its client
//     has left.
//
// A request whose context carries a lock of a limit for its id needs a second
// place: the limit is on its road twice. That is logged ([WithLogger]). With
// [ratelimit.OneAtATime] such a request is always busy.
//
// The caller must Unlock the locks, and should give the request a context that
// ends with them:
//
//	locks, err := m.AcquireAll(r)
//	if err != nil {
//		m.Reject(w, r, err)
//		return
//	}
//	defer locks.Unlock()
//	ctx, cancel := locks.Bind(r.Context())
//	defer cancel()
//	next(w, r.WithContext(ctx))
func (m *Middleware) AcquireAll(r *http.Request) (sqllock.Locks, error) {
	held, err := m.acquire(r, nil)
	return held.Locks, err
}

// acquire is AcquireAll. If waits is not nil, it is called when the request has a
// place in line, with a context that ends with the wait.
func (m *Middleware) acquire(r *http.Request, waits func(context.Context)) (held admission.Held, err error) {
	var needs admission.Request
	err = m.gate.Identify(r.Context(), r.Pattern, &needs, func(level int) (string, error) { return m.levels[level].Key(r) })
	if err == nil {
		held, err = m.gate.Acquire(r.Context(), r.Pattern, &needs, waits)
	}
	return held, err
}
