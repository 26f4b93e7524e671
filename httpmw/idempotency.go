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
// Idempotency-Key (draft-ietf-httpapi-idempotency-key-header), however often and
// to whichever instance it is sent, and answers the others as the first was
// answered. It is made by [NewIdempotency] and safe for concurrent use.
//
// The handler does its effect in the transaction that [EffectTx] finds, and its
// answer is stored in the same one:
//
//	payments := httpmw.NewIdempotency(db, ratelimit.OneAtATime(session, "payments"), httpmw.FromContext(auth.UserID))
//	mux.Handle("POST /payments", authenticate(payments.Handler(pay)))
//
//	func pay(w http.ResponseWriter, r *http.Request) {
//		tx, _ := httpmw.EffectTx(r.Context())
//		… tx.ExecContext(r.Context(), "INSERT INTO ledger …") …
//		w.WriteHeader(http.StatusCreated)
//	}
//
// Invariant: the answer to a key is committed with its effect, or neither is. The
// row of a key is inserted before the handler runs, so that the table's primary
// key holds back, or rolls back, everybody else for whom the lock was not enough:
// a request let in without a lock, a process that froze and lost it. So it needs no
// [sqllock.Fence].
//
// Effects outside of that transaction are not covered: pass the key on to who has
// them. Nor is a server that loses what it has committed, as one with
// synchronous_commit = off may in a crash, or by a failover to a standby that lagged
// behind: it loses the answer with the effect, and the client may have been told.
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

// NewIdempotency makes an Idempotency that stores answers in db, which needs the
// table of [IdempotencySchema], and lets one request at a time through for each
// key. While that one is in flight, the others are refused with 409 Conflict, or
// with [ratelimit.WithWait] wait and get its answer.
//
// A key counts for the principal that principal finds, and for the route:
// principals and routes may use equal keys without meeting. The principal should
// be the authenticated user; with the tenant ([Join]), if a user's name is unique
// only within one. The route is the pattern of [http.ServeMux] that matched, of the
// inner one if there are several (but see [WithRoute]). Limiters of different
// namespaces have different keys, too. The host is no part of that: a service has
// several names, and a retry by another one must not be done again. It is refused.
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

// Handler is next, done once for each key:
//
//	400  no Idempotency-Key, or one that cannot be, or no principal
//	409  a request with this key is in flight: it has the lock, or has the
//	     key's row locked for two seconds; with Retry-After
//	413  the payload is too large to be compared ([WithMaxBody])
//	422  the key was used with another payload
//	500  the answer is too large to be stored ([WithMaxAnswer]), next has ended
//	     the transaction itself, a constraint is broken at the commit, there is
//	     no route, the body was read before
//	503  it cannot be told now; with Retry-After
//
// Each is a problem as those of [Middleware.Reject]. After a 503 nobody knows
// whether the effect was committed: if it was, a retry gets the stored answer, and
// else runs next. After a 500 it was not, unless next has committed it itself:
// then retries are answered 500. Otherwise the answer is next's, or
// the stored one with the header Idempotency-Replayed: true. The
// header's value is a string of structured fields, as the draft wants it,
// "8e03978e-40d5-43dd-bc93-6894a57f9324" with its quotes, or without them, as
// many clients send it: both are one key, 1 to 255 printable ASCII characters.
// Method, host (but not the port), URL (as the client sent it), Content-Type and body must be the same
// again. Nothing around may read the body, not even by r.FormValue: that is found
// out and answered 500.
//
// What becomes of next's effect and of its answer depends on the status:
//
//	2xx, 3xx  the effect is committed, the answer stored
//	4xx       the effect is rolled back, the answer stored; but nothing is stored
//	          of those that a retry may change: 401, 407, 408, 409, 423, 425, 429
//	5xx       the effect is rolled back, nothing is stored: a retry runs next again
//
// If next panics the effect is rolled back, nothing is stored, and the panic goes up
// to the server. The client is sent nothing before all is committed and the lock is
// given back. So the answer is buffered, and next's ResponseWriter is no
// [http.Flusher] or [http.Hijacker]: streams and trailers do not fit. Of the header,
// what next has set is stored, without Set-Cookie and what belongs to the connection.
//
// A request for which a KeyFunc returns [ErrBypass] goes to next as it is: without
// a lock, a transaction or a stored response.
//
// next's context carries the lock ([sqllock.FromContext]), which may be absent,
// and ends with the request or the loss of the lock. The transaction does not end
// with it: a next that goes on without its client leaves an answer to
// the retry. So [http.TimeoutHandler] belongs around. next may run as long as it
// likes, but its transaction may not be idle for longer than [WithMaxIdle].
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

// EffectTx finds the transaction in which the handler of an [Idempotency] does
// its effect; it reports whether there is one. The handler must neither commit
// nor roll it back: that is up to the answer's status. It does not end with the
// request's context: pass that to each statement.
//
// It is not [sqllock.TxFromContext], which finds the transaction of a PerTx lock.
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
	_ = lock.Unlock() // all is committed: who comes next finds it
	answer.send(w)
	return nil
}

// answer is the stored answer, or that of next, stored if it is to be. around is the
// header as others have set it.
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
// if it has not. A lost lock counts at once: the handler may have asked
// [sqllock.Lock.Err] before any timer has ended ctx.
func interruptedBy(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if lock, ok := sqllock.FromContext(ctx); ok && errors.Is(lock.Err(), sqllock.ErrLost) {
		return sqllock.ErrLost
	}
	return nil
}

// run runs next with the body that was read.
func (i *Idempotency) run(ctx context.Context, w *recorder, r *http.Request, asked payload, next http.Handler) {
	inner := asked.restore(r.WithContext(ctx))
	next.ServeHTTP(w, inner)
	carryBack(r, inner)
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
