package idempotency

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// Handler returns next as a handler that takes effect once for each key. The
// first request with a key gets the response of next. A later one gets the
// stored response, with the header Idempotency-Replayed: true.
//
//	2xx, 3xx of next  the effect is committed, the response stored
//	402 of next       the effect is rolled back, the response stored
//	others of next    the effect is rolled back, nothing is stored: a retry runs next again
//
// [WithStoredErrors] stores others, or not even 402. A next that writes nothing
// means 200. If next panics, the effect is rolled back, nothing is stored, and
// the panic goes on to the server. Any other response is a problem like those
// of [httpmw.Middleware.Reject]:
//
//	400  there is no key or no principal, or it is malformed
//	409  a request with this key is in flight; with Retry-After
//	413  the body is too large to be compared ([WithMaxBody])
//	422  the key was used with another payload
//	500  a mistake of the service, which the log names: of next, of the wiring
//	     or of the table. Nothing is committed, unless next did so by itself
//	503  the locks or the database are unavailable, or next was interrupted;
//	     with Retry-After. A retry finds out whether the effect is committed
//
// The context of next ends when the client leaves, the server shuts down or the
// lock is lost. The transaction does not end with it. From then on only a 2xx
// or 3xx that next writes itself commits the effect. If next has written
// nothing, the response is 503 ([httpmw.ErrInterrupted]). An error that next
// writes is the response, and is not stored. The context carries the lock
// ([sqllock.FromContext]) if there is one.
//
// The client is sent nothing before the effect is committed and the lock is
// released. So the ResponseWriter of next is no [http.Flusher] or
// [http.Hijacker], and streams and trailers do not work. Set-Cookie and what
// belongs to the connection are not stored. next sees Accept-Encoding:
// identity, since a replay goes to any client: compress around the Middleware.
//
// POST, PATCH and unusual methods need a key, unless there is
// [WithOptionalKey]. PUT and DELETE may have one. For GET, HEAD, OPTIONS and
// TRACE a key means nothing. A request that needs no key and has none goes to
// next as it is, without a transaction. So does one for which a KeyFunc returns
// [httpmw.ErrBypass]. The page on [idempotency] says what a key may look like,
// what must be the same in a retry, and which middleware stands around.
//
// [idempotency]: https://github.com/latchkey-go/latchkey/blob/main/docs/idempotency.md
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("idempotency: Handler needs an http.Handler that is not nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := m.serve(w, r, next); err != nil {
			m.reject(w, r, err)
		}
	})
}

// serve responds to r. If it returns an error, it has written nothing.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) error {
	asked, err := m.read(w, r) // all of the body, before the lock is taken
	if errors.Is(err, httpmw.ErrBypass) {
		next.ServeHTTP(w, r)
		return nil
	}
	if err != nil {
		_ = inside.Refuse(r.Context(), m.limiter, err) // for its Observer: a dry run rejects too, without a key nothing can be done once
		return err
	}
	if inside.Carried(r.Context(), m.limiter, asked.lockID()) {
		m.report(r, slog.LevelError, twiceText, slog.Int("limit", m.limiter.Limit()))
	}
	lock, err := m.limiter.Acquire(r.Context(), asked.lockID())
	switch {
	case errors.Is(err, ratelimit.ErrBadID): // a hash in hexadecimal is a good id
		return errShortIDs
	case err != nil:
		return err
	}
	defer lock.Unlock() //nolint:errcheck // the Observer is told of a loss; the client has its response
	ctx, cancel := lock.Bind(r.Context())
	defer cancel()
	response, err := m.respond(ctx, w.Header(), r, asked, next)
	if err != nil {
		return err
	}
	_ = lock.Unlock() // everything is committed: the next request finds it
	response.send(w)
	return nil
}

// respond returns the stored response, or that of next, which it stores if its
// status says so. around is the header as handlers around have set it.
func (m *Middleware) respond(ctx context.Context, around http.Header, r *http.Request, asked payload, next http.Handler) (*storedResponse, error) {
	claim, err := m.responses.claim(ctx, asked)
	switch {
	case errors.Is(err, errInFlight):
		return nil, m.inFlight(r)
	case err != nil:
		return nil, err
	case claim.stored != nil:
		return claim.stored.to(asked)
	}
	defer claim.end() // also if next panics
	w := newRecorder(m.maxResponse, around)
	run(context.WithValue(ctx, txKey{}, claim.tx), w, r, asked, next)
	interrupted := admission.InterruptedBy(ctx)
	fresh, err := w.response(interrupted)
	if err != nil {
		return nil, err
	}
	success := fresh.status < 400
	if success || interrupted == nil && m.storeError(fresh.status) { // an error may be due to the interruption alone
		err = claim.commit(ctx, fresh, !success)
	}
	return fresh, err
}

// run runs next with the body that was read.
func run(ctx context.Context, w *recorder, r *http.Request, asked payload, next http.Handler) {
	inner := asked.restore(r.WithContext(ctx))
	defer admission.CarryBack(r, inner) // also if next panics
	next.ServeHTTP(w, inner)
}

// inFlight returns the error for a request that passed the lock although
// another request with its key is in its transaction. The lock was lost, or the
// limiter fails open.
func (m *Middleware) inFlight(r *http.Request) error {
	m.log.WarnContext(context.WithoutCancel(r.Context()), "idempotency: rejected a request that the lock had admitted next to another with its key", "route", r.Pattern)
	err := &ratelimit.BusyError{Namespace: string(m.limiter.Namespace()), RetryAfter: claimTimeout}
	_ = inside.Refuse(r.Context(), m.limiter, err)
	return err
}
