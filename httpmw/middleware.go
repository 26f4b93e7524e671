// Package httpmw puts a [ratelimit.Limiter] in front of a net/http handler:
//
//	exports := ratelimit.OneAtATime(session, "export")
//	perUser := httpmw.New(exports, httpmw.FromContext(auth.UserID))
//	mux.Handle("POST /export", authenticate(perUser.Handler(export)))
//
// A second request of a user is answered 429 Too Many Requests, or 409 Conflict
// if told so, while the first is being served, by whichever instance. Requests
// are told apart by a [KeyFunc]: build it on who the client was shown to be, not
// on what it says. A client that chooses its key can block another's.
//
// An [Idempotency] is for the header Idempotency-Key: it has a request take effect
// once, and answers those that repeat it as it answered the first.
package httpmw

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/latchkey-go/latchkey/internal/wiring"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Middleware admits requests by a Limiter and answers those it refuses. It is
// made by [New] and safe for concurrent use.
type Middleware struct {
	limiter *ratelimit.Limiter
	key     KeyFunc

	conflict         bool
	problemType      string
	rateLimitHeaders bool
	rejectHandler    func(w http.ResponseWriter, r *http.Request, err error) // nil: problem+json
	busyText         string                                                  // "": the limit's name and size
	details          map[verdict]string                                      // in place of those for everybody
	problems         map[verdict]problem

	log     *slog.Logger // nil: slog.Default
	reports wiring.Reports
}

// New makes a Middleware that admits a request if l does for the id that key
// finds in it. It panics if l or key is nil.
func New(l *ratelimit.Limiter, key KeyFunc, opts ...Option) *Middleware {
	switch {
	case l == nil:
		panic("httpmw: New needs a *ratelimit.Limiter that is not nil")
	case key == nil:
		panic("httpmw: New needs a KeyFunc that is not nil")
	}
	m := &Middleware{limiter: l, key: key, problemType: blankType}
	for _, opt := range opts {
		opt(m)
	}
	m.problems = m.makeProblems()
	return m
}

// Handler is next behind the Limiter. A request that is not admitted is answered
// by [Middleware.Reject].
//
// next gets a request whose context carries the lock ([sqllock.FromContext]) and
// ends with the request or, with cause [sqllock.ErrLost], with the loss of the
// lock, whichever comes first; and the ResponseWriter as it came.
//
// The lock goes back when next returns or panics, which is before the client can
// have the whole response, with one exception: over HTTP/1, a next that sets
// Content-Length and writes that much, flushed or too much for the server's
// buffers, completes the response by itself, as does one that flushes an answer
// without a body. Its client may ask again a moment before the lock is back, and
// be refused. Such a handler can give the lock back early, by Unlock, before it
// writes the last byte. When next has hijacked the connection the lock still
// lasts until next returns.
//
// Put it inside of [http.TimeoutHandler], which answers while its handler still
// runs: TimeoutHandler(m.Handler(h)), or else the next request runs beside it.
// Put it inside of [http.ServeMux] too, if the key is a [PathValue]. A request
// body that next does not read keeps the server from noticing that the client
// has gone, and so from ending the context.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("httpmw: Handler needs an http.Handler that is not nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock, err := m.Acquire(r)
		if err != nil {
			m.Reject(w, r, err)
			return
		}
		defer lock.Unlock() //nolint:errcheck // the Observer hears of a loss; nobody else is left to tell
		ctx, cancel := lock.Bind(r.Context())
		defer cancel()
		inner := r.WithContext(ctx)
		next.ServeHTTP(w, inner)
		carryBack(r, inner)
	})
}

// carryBack gives the request that came what the handler left in its copy:
// net/http removes the files of the MultipartForm it finds there, and what logs
// or measures requests finds the Pattern there.
func carryBack(r, inner *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = inner.MultipartForm
	}
	if r.Pattern == "" {
		r.Pattern = inner.Pattern
	}
}

// Acquire admits r or says why not. It is for frameworks in which
// [Middleware.Handler] does not fit, such as gin. Its errors are those of
// [ratelimit.Limiter.Acquire] and of the KeyFunc. [Middleware.Reject] writes the
// response to each.
//
// A request whose context carries a lock of this limit for this id asks for a
// second place: the limit is on its road twice. That is logged ([WithLogger]).
// With [ratelimit.OneAtATime] such a request is always busy.
//
// The caller must Unlock the lock, which may be nil, and should give the request
// a context that ends with it:
//
//	lock, err := m.Acquire(r)
//	if err != nil {
//		m.Reject(w, r, err)
//		return
//	}
//	defer lock.Unlock()
//	ctx, cancel := lock.Bind(r.Context())
//	defer cancel()
//	next(w, r.WithContext(ctx))
func (m *Middleware) Acquire(r *http.Request) (*sqllock.Lock, error) {
	id, err := m.key(r)
	if err == nil && id == "" {
		err = ErrNoKey
	}
	switch {
	case errors.Is(err, ErrBypass):
		return nil, nil
	case err != nil:
		return nil, m.unkeyed(r, newKeyError(r, err))
	}
	if m.limiter.Carried(r.Context(), id) {
		m.report(r, slog.LevelError, twiceText, slog.Int("limit", m.limiter.Limit()))
	}
	return m.limiter.Acquire(r.Context(), id)
}

// unkeyed rejects r, whose KeyFunc has failed with err; nil in a dry run.
func (m *Middleware) unkeyed(r *http.Request, err keyError) error {
	switch verdictOn(err) {
	case badKey:
		if errors.Is(err, ErrNoKey) {
			m.reportNoKey(r, err)
		}
	case broken:
		m.report(r, slog.LevelError, failedText, slog.Any("error", err))
	}
	return m.limiter.Refuse(err)
}
