package httpmw

import (
	"context"
	"errors"
	"net/http"

	"github.com/latchkey-go/latchkey/sqllock"
)

// ErrInterrupted is matched by the error with which a handler's request is
// rejected that began and ended without a response, because its context ended:
// the lock was lost, or held for too long, or the request itself ended. Such a
// request may have had effects; one that was not admitted had none. The error
// matches the context's cause too, such as [sqllock.ErrLost] or
// [ratelimit.ErrMaxHold].
var ErrInterrupted = errors.New("httpmw: the request was interrupted")

// interruption is ErrInterrupted with its cause.
type interruption struct{ cause error }

func (e interruption) Error() string        { return ErrInterrupted.Error() + ": " + e.cause.Error() }
func (e interruption) Is(target error) bool { return target == ErrInterrupted }
func (e interruption) Unwrap() error        { return e.cause }

// admit is Acquire while the client is watched. ahead is nil unless r has
// waited.
func (m *Middleware) admit(w http.ResponseWriter, r *http.Request) (lock *sqllock.Lock, ahead *readAhead, err error) {
	ctx := r.Context()
	if ahead = m.newReadAhead(w, r); ahead != nil {
		ctx = ahead
	}
	lock, err = m.acquire(ctx, r)
	if !ahead.begun() {
		return lock, nil, err
	}
	ahead.handOver()
	return lock, ahead, err
}

// serve has next serve r, which was admitted with lock.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, lock *sqllock.Lock, ahead *readAhead, next http.Handler) {
	defer lock.Unlock() //nolint:errcheck // the Observer hears of a loss; the client has its response
	ctx, cancel := lock.Bind(r.Context())
	defer cancel()
	inner := r.WithContext(ctx)
	defer carryBack(r, inner)
	held := newHeldWriter(w, r, inner, lock, ahead)
	defer held.handlerEnded()
	next.ServeHTTP(held.exposed(), inner)
	held.handlerEnded()

	unanswered := held.state == unbegun && ctx.Err() != nil
	_ = lock.Unlock() // whatever it returns, the client gets its response now
	if unanswered {
		held.reject(m, interruption{context.Cause(ctx)})
		return
	}
	held.end()
}

// rejectWaiting is Reject for a request that has waited.
func (m *Middleware) rejectWaiting(w http.ResponseWriter, r *http.Request, ahead *readAhead, err error) {
	defer ahead.free()
	ahead.cut()
	if ahead.wasCut.Load() {
		w.Header().Set("Connection", "close")
	}
	rest := r.WithContext(r.Context())
	rest.Body = ahead
	m.Reject(w, rest, err)
}
