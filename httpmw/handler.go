package httpmw

import (
	"context"
	"errors"
	"net/http"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/sqllock"
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
	var waits func()
	if mayReadAhead(w, r) {
		held = m.newHeldWriter(w, r)
		defer held.body.finish() // if an Observer panics, nothing reads on
		waits = held.body.ahead.WaitBegins
	}
	locks, err := m.acquire(r, waits)
	waited := held != nil && held.body.ahead.begun()
	switch {
	case err != nil && waited:
		held.rejectWaiting(m, err)
	case err != nil:
		m.Reject(w, r, err)
	case locks.None() && !waited: // admitted without a lock
		next.ServeHTTP(w, r)
	default:
		if held == nil {
			held = m.newHeldWriter(w, r)
		}
		m.serve(held, locks, next)
	}
}

// serve calls next for an admitted request, and releases its locks.
func (m *Middleware) serve(held *heldWriter, locks admission.Held, next http.Handler) {
	released := false
	defer func() {
		if !released {
			_ = locks.Unlock()
		}
	}()
	ctx, cancel := held.bind(locks)
	defer cancel()
	inner := held.original().WithContext(ctx)
	defer admission.CarryBack(held.r, inner)
	held.body.handOver(inner)
	defer held.handlerEnded()
	next.ServeHTTP(held.exposed(), inner)

	var cause error
	if held.state == unbegun && !held.cutWithin(ctx) {
		cause = admission.InterruptedBy(ctx)
		if cause == nil && held.locks.Lost() {
			cause = sqllock.ErrLost
		}
	}
	held.handlerEnded()
	_ = locks.Unlock() // the Observer is told of a loss; the client gets its response now
	released = true
	if cause != nil {
		held.reject(m, interruption{cause})
		return
	}
	held.end()
}

// bind returns the context of the handler, which carries locks.
func (w *heldWriter) bind(locks admission.Held) (ctx context.Context, cancel context.CancelFunc) {
	if w.body == nil || !w.body.ahead.begun() {
		ctx, cancel = locks.Bind(w.r.Context())
	} else {
		around, end := w.body.ahead.forHandler()
		bound, unbind := locks.Bind(around)
		ctx, cancel = bound, func() {
			unbind()
			end()
		}
	}
	w.locks = locks.CarriedBy(ctx)
	return ctx, cancel
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
