package httpmw

import (
	"context"
	"errors"
	"net/http"

	"github.com/latchkey-go/latchkey/internal/handoff"
)

// ErrInterrupted reports that a handler was interrupted: its context ended, and
// then it returned without a response. The lock was lost, or held for too long,
// or the request ended. Such a request may have had effects. A request that was
// not admitted had none.
//
// [Middleware.Reject] gets this error for such a request. The error also
// matches the cause of the context's end, such as [sqllock.ErrLost] or
// [ratelimit.ErrMaxHold].
var ErrInterrupted = errors.New("httpmw: the request was interrupted")

// interruption is ErrInterrupted with its cause.
type interruption struct{ cause error }

func (e interruption) Error() string        { return ErrInterrupted.Error() + ": " + e.cause.Error() }
func (e interruption) Is(target error) bool { return target == ErrInterrupted }
func (e interruption) Unwrap() error        { return e.cause }

// handle admits r and calls next, or rejects r.
func (m *Middleware) handle(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var held *heldWriter // made early only for a request that may wait
	ctx := r.Context()
	if mayReadAhead(w, r) {
		held = m.newHeldWriter(w, r)
		defer held.body.finish() // if an Observer panics, nothing reads on
		ctx = &held.body.ahead
	}
	lock, err := m.acquire(ctx, r)
	waited := held != nil && held.body.ahead.begun()
	switch {
	case err != nil && waited:
		held.rejectWaiting(m, err)
	case err != nil:
		m.Reject(w, r, err)
	case lock == nil && !waited: // admitted without a lock
		next.ServeHTTP(w, r)
	default:
		if held == nil {
			held = m.newHeldWriter(w, r)
		}
		held.lock = lock
		m.serve(held, next)
	}
}

// serve calls next for an admitted request, and releases the lock.
func (m *Middleware) serve(held *heldWriter, next http.Handler) {
	lock := held.lock
	defer lock.Unlock() //nolint:errcheck // the Observer is told of a loss; the client has its response
	ctx, cancel := held.bind()
	defer cancel()
	inner := held.original().WithContext(ctx)
	defer handoff.CarryBack(held.r, inner)
	held.body.handOver(inner)
	defer held.handlerEnded()
	next.ServeHTTP(held.exposed(), inner)

	var cause error
	if held.state == unbegun && !held.cutWithin(ctx) {
		cause = handoff.InterruptedBy(ctx)
	}
	held.handlerEnded()
	_ = lock.Unlock() // the client gets its response now, with or without an error
	if cause != nil {
		held.reject(m, interruption{cause})
		return
	}
	held.end()
}

// bind returns the context of the handler.
func (w *heldWriter) bind() (context.Context, context.CancelFunc) {
	if w.body == nil || !w.body.ahead.begun() {
		return w.lock.Bind(w.r.Context())
	}
	around, end := w.body.ahead.forHandler()
	ctx, cancel := w.lock.Bind(around)
	return ctx, func() {
		cancel()
		end()
	}
}

// rejectWaiting is [Middleware.Reject] for a request that has waited.
func (w *heldWriter) rejectWaiting(m *Middleware, err error) {
	rest := w.original().WithContext(w.r.Context())
	w.body.handOver(rest)
	w.handlerEnded()
	m.Reject(w.w, rest, err)
}

// original returns the request to copy for the handler.
func (w *heldWriter) original() *http.Request {
	if w.body == nil {
		return w.r
	}
	return w.body.ahead.r
}
