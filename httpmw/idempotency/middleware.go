package httpmw

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// An Idempotency lets a request take effect once for each value of its header
// Idempotency-Key (draft-ietf-httpapi-idempotency-key-header), however often the
// request is sent and to whichever instance. Later requests with that key get the
// response of the first. An Idempotency is made by [NewIdempotency] and safe for
// concurrent use.
//
// The handler does its effect in the transaction that [EffectTx] returns. The
// Idempotency stores the response in the same transaction and commits it:
//
//	payments := httpmw.NewIdempotency(db, ratelimit.OneAtATime(session, "payments"), httpmw.FromContext(auth.UserID))
//	mux.Handle("POST /payments", authenticate(payments.Handler(pay)))
//
//	func pay(w http.ResponseWriter, r *http.Request) {
//		tx, _ := httpmw.EffectTx(r.Context())
//		if _, err := tx.ExecContext(r.Context(), "INSERT INTO ledger …"); err != nil {
//			http.Error(w, "try again", http.StatusServiceUnavailable) // rolled back
//			return
//		}
//		w.WriteHeader(http.StatusCreated) // committed
//	}
//
// Invariant: the response to a key is committed with its effect, or neither is.
// The row of a key is inserted before the handler runs. So the table's primary key
// stops every request for which the lock was not enough: one that was let in
// without a lock, or one of a process that froze and lost its lock. No
// [sqllock.Fence] is needed.
//
// Two things are not covered. An effect outside of that transaction, such as a
// call of another service, may happen again: give that service a key of its own.
// A server that loses commits loses the response with the effect, although the
// client may have it. That is a server with synchronous_commit = off after a
// crash, or a standby that lagged behind after a failover.
type Idempotency struct {
	answers   *answerStore
	limiter   *ratelimit.Limiter
	principal KeyFunc
	route     KeyFunc
	key       KeyFunc
	refusals  *Middleware // how requests are refused, not whether
	log       *slog.Logger

	fields      []string // of the header, in the fingerprint: canonical, sorted
	keyOptional bool     // also for POST and the like
	maxBody     int64    // bytes of a request
	maxAnswer   int      // bytes of an answer
	storeError  func(status int) bool
}

// NewIdempotency returns an Idempotency that runs one request at a time for each
// key, and stores responses in db, in the table of [IdempotencySchema]. While a
// request is in flight, others with its key are rejected with 409 Conflict. With
// [ratelimit.WithWait] they wait and get its response.
//
// A key belongs to a principal, a route and the namespace of l: equal keys of two
// principals are two keys. principal should return the authenticated user, joined
// with the tenant ([Join]) if a user's name is unique only within a tenant. The
// route is the pattern of the innermost [http.ServeMux] that matched; [WithRoute]
// replaces it. The host is not part of the key, since a service may have several
// names. A retry by another name is rejected with 422 and takes no effect.
//
// db is a pool of PostgreSQL, MySQL, MariaDB or SQLite. The first request finds out
// which; another database is 500, and the log says so. Best is the service's own
// pool, not the small one of the locks: each request in flight has a connection of it
// for its transaction. Together all Idempotencies of a process leave one connection
// of db to their handlers, so that a handler that asks db again does not wait for
// ever. A request beyond that waits for at most two seconds and is 503 then. The log
// names the cause: raise SetMaxOpenConns, or use the transaction of [EffectTx]. A pool
// of one connection carries one transaction, and has none to spare for its handler.
//
// What differs between the databases:
//   - In MySQL and MariaDB the table needs InnoDB. DDL in the handler commits what the
//     handler did before it. The response is 500 then, also for each retry.
//   - A file of SQLite has one writer, so that one handler runs at a time. Keep the
//     locks in another file, and let the handler write by EffectTx's transaction
//     only. The handler must return on the first error of a statement: SQLite may
//     have ended the transaction with it.
//   - In SQLite nothing ends the transaction of a process that is frozen: see
//     [WithMaxIdle].
//
// It panics if db, l or principal is nil, or l is not [ratelimit.OneAtATime].
func NewIdempotency(db *sql.DB, l *ratelimit.Limiter, principal KeyFunc, opts ...IdempotencyOption) *Idempotency {
	switch {
	case db == nil:
		panic("httpmw: NewIdempotency needs a *sql.DB that is not nil")
	case l == nil:
		panic("httpmw: NewIdempotency needs a *ratelimit.Limiter that is not nil")
	case l.Limit() != 1:
		panic("httpmw: NewIdempotency needs a limiter of one at a time: see ratelimit.OneAtATime")
	case principal == nil:
		panic("httpmw: NewIdempotency needs a KeyFunc that is not nil")
	}
	i := &Idempotency{
		answers: newAnswerStore(db), limiter: l, principal: principal, route: muxPattern, key: headerKey,
		refusals: &Middleware{limiter: l, key: principal, problemType: blankType, details: idempotencyDetails},
		maxBody:  1 << 20, maxAnswer: 1 << 20, storeError: storeOutcome,
	}
	for _, opt := range append([]IdempotencyOption{WithFingerprintHeaders("If-Match", "X-Http-Method-Override")}, opts...) {
		opt.idempotency(i)
	}
	i.log = cmp.Or(i.refusals.log, slog.Default())
	i.refusals.conflict = true
	i.refusals.problems = i.refusals.makeProblems()
	return i
}

// Handler returns next as a handler that takes effect once for each key.
//
// The first request with a key gets the response of next. A later one gets the
// stored response, with the header Idempotency-Replayed: true. Any other response
// is a problem like those of [Middleware.Reject]:
//
//	400  there is no key or no principal, or it is malformed
//	409  a request with this key is in flight; with Retry-After
//	413  the body is too large to be compared ([WithMaxBody])
//	422  the key was used with another payload
//	500  the response is too large to be stored ([WithMaxAnswer]), next has ended
//	     its transaction or written 101, a constraint fails at the commit, there
//	     is no route, the body was read before, the table is missing or not as it
//	     should be
//	503  the locks or the database are unavailable, or next was interrupted;
//	     with Retry-After
//
// After a 503 it is unknown whether the effect is committed. A retry finds out: it
// gets the stored response, or runs next. After a 500 nothing is committed, unless
// next has committed it by itself. Then each retry is 500 too.
//
// # Which requests have a key
//
// POST, PATCH and unusual methods need a key, unless there is [WithOptionalKey].
// PUT and DELETE may have one. For GET, HEAD, OPTIONS and TRACE a key means
// nothing. A request without a key that needs none goes to next as it is: it is not
// limited, its response is not stored, and [EffectTx] reports false. So does a
// request for which a KeyFunc returns [ErrBypass].
//
// The header is a string of structured fields, such as
// "8e03978e-40d5-43dd-bc93-6894a57f9324" with its quotes. Its parameters mean
// nothing. Without the quotes, as many clients send it, it is the same key. A key
// has 1 to 255 printable ASCII characters.
//
// # What must be the same
//
// The payload of a request is its method, host (without the port), URL as the
// client sent it, Content-Type, If-Match, X-HTTP-Method-Override and body. To that
// come the fields of [WithFingerprintHeaders]. A key that comes with another
// payload is rejected.
//
// A handler around may decompress the body, or read and restore it. It must not
// take anything from the body, not even by r.FormValue. The Idempotency finds that
// out by reading, and responds with 500 ([ErrBodyConsumed]). It cannot find out
// everything if the request has no Content-Length, or if a handler around has
// replaced r.Body, as [http.MaxBytesHandler] does. Then it notices that nothing is
// left of the body, but not that a part is missing. And it rejects an empty body
// without a Content-Length, which looks like one that was read.
//
// # What becomes of the effect
//
//	2xx, 3xx  the effect is committed, the response stored
//	402       the effect is rolled back, the response stored
//	others    the effect is rolled back, nothing is stored: a retry runs next again
//
// [WithStoredErrors] stores others, or not even 402. A next that writes nothing
// means 200. If next panics, the effect is rolled back, nothing is stored, and the
// panic goes on to the server.
//
// The context of next ends when the client leaves, the server shuts down or the lock
// is lost. From then on only a 2xx or 3xx that next writes itself commits the
// effect, so next should write it when its effect is complete. If next has written
// nothing, the effect is rolled back and the response is 503 ([ErrInterrupted]).
// An error that next writes is the response, and is not stored.
//
// What is inside of the Idempotency may write in the name of a silent handler: gin
// writes 200, and some middlewares for compression end an empty stream. A handler in
// these must write an error when it gives up.
//
// The transaction does not end with that context. A next that goes on without its
// client leaves a response to the retry. next may run as long as it likes, but its
// transaction must not be idle for longer than [WithMaxIdle]. Put the Idempotency
// inside of [http.TimeoutHandler].
//
// # What is stored of the response
//
// The client is sent nothing before the effect is committed and the lock is
// released. So the response is buffered: the ResponseWriter of next is no
// [http.Flusher] or [http.Hijacker], and streams and trailers do not work. The
// stored header has what next has set, without Set-Cookie and without what belongs
// to the connection. A field that next has removed is not in a replay either. The
// context of next carries the lock ([sqllock.FromContext]) if there is one.
func (i *Idempotency) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("httpmw: Handler needs an http.Handler that is not nil")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := i.serve(w, r, next); err != nil {
			i.report(r, err)
			i.refusals.Reject(w, r, err)
		}
	})
}

// effectTxKey is the context key of the handler's transaction.
type effectTxKey struct{}

// EffectTx returns the transaction in which the handler of an [Idempotency] does
// its effect. It reports false if there is none: outside of an Idempotency, and for
// a request that needs no key and has none. Such a handler begins its own.
//
// The handler must neither commit nor roll back the transaction: the status of its
// response decides. The transaction does not end with the request's context, so pass
// that context to each statement.
//
// [sqllock.TxFromContext] returns another transaction, that of a PerTx lock.
func EffectTx(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(effectTxKey{}).(*sql.Tx)
	return tx, ok
}

// serve responds to r, or returns why not, with nothing written.
func (i *Idempotency) serve(w http.ResponseWriter, r *http.Request, next http.Handler) error {
	asked, err := i.read(w, r) // all of the body, before the lock is taken
	if errors.Is(err, ErrBypass) {
		next.ServeHTTP(w, r)
		return nil
	}
	if err != nil {
		_ = i.limiter.Refuse(err) // for its Observer: a dry run rejects too, since there is nothing to do once
		return err
	}
	if i.limiter.Carried(r.Context(), asked.lockID()) {
		i.refusals.report(r, slog.LevelError, twiceText, slog.Int("limit", i.limiter.Limit()))
	}
	lock, err := i.limiter.Acquire(r.Context(), asked.lockID())
	switch {
	case errors.Is(err, ratelimit.ErrBadID): // ours is a good one
		return errShortIDs
	case err != nil:
		return err
	}
	defer lock.Unlock() //nolint:errcheck // the Observer hears of a loss; nobody else is left to tell
	ctx, cancel := lock.Bind(r.Context())
	defer cancel()
	answer, err := i.answer(ctx, w.Header(), r, asked, next)
	if err != nil {
		return err
	}
	_ = lock.Unlock() // all is committed: the next request finds it
	answer.send(w)
	return nil
}

// answer returns the stored response, or that of next, which it stores if its status
// says so. around is the header as others have set it.
func (i *Idempotency) answer(ctx context.Context, around http.Header, r *http.Request, asked payload, next http.Handler) (*storedAnswer, error) {
	claim, err := i.answers.claim(ctx, asked)
	switch {
	case errors.Is(err, errInFlight):
		return nil, i.inFlight(r)
	case err != nil:
		return nil, err
	case claim.stored != nil:
		return claim.stored.to(asked)
	}
	defer claim.end() // also if next panics
	w := newRecorder(i.maxAnswer, around)
	i.run(context.WithValue(ctx, effectTxKey{}, claim.tx), w, r, asked, next)
	interrupted := interruptedBy(ctx)
	if interrupted != nil && claim.starved() {
		i.log.WarnContext(context.WithoutCancel(ctx), poolOfOneHint, "route", r.Pattern)
	}
	fresh, err := w.answer(interrupted)
	if err != nil {
		return nil, err
	}
	if d := i.disposition(fresh.status, interrupted != nil); d != discarded {
		err = claim.commit(ctx, fresh, d == stored)
	}
	return fresh, err
}

// interruptedBy returns why the bound context ctx of a handler has ended, or nil
// if it has not. Err of a bound context looks at the lock's clock. A lock that is
// just being lost counts too: the handler may have heard of that by
// [sqllock.Lock.Err], or by [sqllock.Lock.Context], before ctx ends.
func interruptedBy(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	if lock, ok := sqllock.FromContext(ctx); ok && errors.Is(lock.Err(), sqllock.ErrLost) {
		return sqllock.ErrLost
	}
	return nil
}

// run runs next with the body that was read.
func (i *Idempotency) run(ctx context.Context, w *recorder, r *http.Request, asked payload, next http.Handler) {
	inner := asked.restore(r.WithContext(ctx))
	defer carryBack(r, inner) // also if next panics
	next.ServeHTTP(w, inner)
}

// inFlight is the refusal of a request that the lock has let in beside another:
// there was none, or it was lost. That is worth a word.
func (i *Idempotency) inFlight(r *http.Request) error {
	i.log.WarnContext(context.WithoutCancel(r.Context()), "httpmw: refused a request that the lock had let in beside another with its key", "route", r.Pattern)
	err := &ratelimit.BusyError{Namespace: string(i.limiter.Namespace()), RetryAfter: claimPatience}
	_ = i.limiter.Refuse(err)
	return err
}

// report logs what somebody should look at: a key of two payloads, and what the
// client is told no more of than 500 or 503.
func (i *Idempotency) report(r *http.Request, err error) {
	ctx := context.WithoutCancel(r.Context())
	switch verdictOn(err) {
	case otherPayload:
		i.log.WarnContext(ctx, "httpmw: refused a request", "route", r.Pattern, "error", err)
	case broken, unknown:
		i.log.ErrorContext(ctx, "httpmw: failed a request", "route", r.Pattern, "error", err)
	}
}
