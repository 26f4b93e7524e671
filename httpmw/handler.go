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
// matches the cause of the context's end, such as [sqllock.ErrLost],
// [sqllock.ErrClosed] or [ratelimit.ErrMaxHold].
var ErrInterrupted = errors.New("httpmw: the request was interrupted")

// interruption is ErrInterrupted with its cause.
type interruption struct{ cause error }

func (e interruption) Error() string        { return ErrInterrupted.Error() + ": " + e.cause.Error() }
func (e interruption) Is(target error) bool { return target == ErrInterrupted }
func (e interruption) Unwrap() error        { return e.cause }

// handle admits r and calls next, or rejects r.
func (m *Middleware) handle(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var read *heldBody // of a request whose body is read if it waits
	var waits func(context.Context)
	if readsBeforeWait(w, r) {
		read = newHeldBody(w, r)
		waits = read.readAhead
	}
	locks, err := m.acquire(r, waits)
	waited := read != nil && read.before
	switch {
	case err != nil && waited:
		m.rejectWaiting(w, r, read, err)
	case err != nil:
		m.Reject(w, r, err)
	case locks.None() && !waited: // admitted without a lock
		next.ServeHTTP(w, r)
	default:
		held := m.newHeldWriter(w, r)
		if held.body = read; read == nil && hasBody(r) {
			held.body = newHeldBody(w, r)
		}
		held.serve(locks, next)
	}
}

// rejectWaiting is [Middleware.Reject] for a request whose body was read. The
// handler of WithRejectHandler may read it again.
func (m *Middleware) rejectWaiting(w http.ResponseWriter, r *http.Request, body *heldBody, err error) {
	if body.wasCut() {
		w.Header().Set("Connection", "close")
	}
	rest := r.WithContext(r.Context())
	body.handOver(rest)
	defer body.finish()
	m.Reject(w, rest, err)
}

// serve calls next for an admitted request, and releases its locks.
func (w *heldWriter) serve(locks admission.Held, next http.Handler) {
	released := false
	defer func() {
		if !released {
			_ = locks.Unlock()
		}
	}()
	ctx, cancel := locks.Bind(w.r.Context())
	defer cancel()
	w.locks = locks.CarriedBy(ctx)
	inner := w.r.WithContext(ctx)
	defer admission.CarryBack(w.r, inner)
	w.body.handOver(inner)
	defer w.body.finish()
	next.ServeHTTP(w.exposed(), inner)

	var cause error
	if w.state == unbegun {
		cause = admission.InterruptedBy(ctx)
		if cause == nil && w.locks.Lost() {
			cause = sqllock.ErrLost
		}
	}
	w.body.finish()
	_ = locks.Unlock() // the Observer is told of a loss; the client gets its response now
	released = true
	if cause != nil {
		w.reject(interruption{cause})
		return
	}
	w.end()
}
