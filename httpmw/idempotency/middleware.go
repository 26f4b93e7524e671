// Package idempotency lets a request take effect once for each value of its
// header Idempotency-Key:
//
//	payments := idempotency.New(db, ratelimit.OneAtATime(locks, "payments"), httpmw.FromContext(auth.UserID))
//	mux.Handle("POST /payments", authenticate(payments.Handler(pay)))
//
//	func pay(w http.ResponseWriter, r *http.Request) {
//		tx, _ := idempotency.Tx(r.Context())
//		if _, err := tx.ExecContext(r.Context(), "INSERT INTO ledger …"); err != nil {
//			http.Error(w, "try again", http.StatusServiceUnavailable) // rolled back
//			return
//		}
//		w.WriteHeader(http.StatusCreated) // committed
//	}
//
// Later requests with the same key get the response of the first, whichever
// instance they reach. The header is that of
// draft-ietf-httpapi-idempotency-key-header.
package idempotency

import (
	"database/sql"
	"log/slog"
	"net/http"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A Middleware runs a handler once for each key. It stores the response in the
// transaction in which the handler does its effect ([Tx]). A Middleware is made
// by [New] and is safe for concurrent use.
//
// Invariant: the response to a key is committed with its effect, or neither is.
// The row of a key is inserted before the handler runs. So the table's primary
// key stops every request for which the lock was not enough, and no
// [sqllock.Fence] is needed.
//
// An effect outside of that transaction may happen again. A server that loses
// commits loses the response with the effect.
type Middleware struct {
	responses *store
	limiter   *ratelimit.Limiter
	principal httpmw.KeyFunc
	route     httpmw.KeyFunc
	key       httpmw.KeyFunc // default: the header

	rejecter *httpmw.Middleware // writes the responses to rejected requests
	rejects  []httpmw.Option    // of rejecter
	log      *slog.Logger
	reports  admission.Reports

	fields      []string // header fields in the fingerprint: canonical, sorted
	keyOptional bool     // also for POST and the like
	keyDetail   string   // what a client without a good key reads
	maxBody     int64    // bytes of a request
	maxResponse int      // bytes of a response
	storeError  func(status int) bool
}

// New returns a Middleware that runs one request at a time for each key. It
// stores the responses in db, in the table of [Schema]. While a request is in
// flight, others with its key are rejected with 409 Conflict. With
// [ratelimit.WithWait] they wait and get its response.
//
// A key belongs to a principal, a route and the namespace of l: equal keys of
// two principals are two keys. principal should return the authenticated user,
// joined with the tenant ([httpmw.Join]) if a user's name is unique only within
// a tenant. The route is the pattern of the innermost [http.ServeMux] that
// matched; [WithRoute] replaces it. The host is not part of the key, since a
// service may have several names. A retry by another name is rejected with 422
// and takes no effect.
//
// db is a pool of PostgreSQL, MySQL, MariaDB, TiDB or SQLite. The first request
// finds out which. Another database is 500, and the log says so.
//
// db should be the service's own pool, since each request in flight uses a
// connection for its transaction. All Middlewares of a process together leave
// one connection to their handlers. The first request reads SetMaxOpenConns for
// that. Without a limit a hundred transactions run at once, and three on a
// pgxpool.Pool (stdlib.OpenDBFromPool), which does not show its own: pass its
// MaxConns to SetMaxOpenConns. A request beyond that waits for at most two
// seconds, and is 503 then. A pool of one connection carries one transaction.
//
// In MySQL and MariaDB, DDL in the handler commits what came before it: the
// response and that to each retry is 500. A file of SQLite has one writer, so
// that one handler runs at a time. The handler must return on the first error
// of a statement: SQLite may have ended the transaction with it.
//
// New panics if db, l or principal is nil, or l is not [ratelimit.OneAtATime].
func New(db *sql.DB, l *ratelimit.Limiter, principal httpmw.KeyFunc, opts ...Option) *Middleware {
	switch {
	case db == nil:
		panic("idempotency: New needs a *sql.DB that is not nil")
	case l == nil:
		panic("idempotency: New needs a *ratelimit.Limiter that is not nil")
	case l.Limit() != 1:
		panic("idempotency: New needs a limiter of one at a time: see ratelimit.OneAtATime")
	case principal == nil:
		panic("idempotency: New needs a KeyFunc that is not nil")
	}
	m := &Middleware{
		responses: newStore(db), limiter: l, principal: principal, route: muxPattern, key: headerKey,
		log: slog.Default(), rejects: []httpmw.Option{httpmw.WithBusyText(inFlightDetail)}, keyDetail: headerDetail,
		maxBody: 1 << 20, maxResponse: 1 << 20, storeError: func(status int) bool { return status == http.StatusPaymentRequired },
	}
	WithFingerprintHeaders("If-Match", "X-Http-Method-Override")(m)
	for _, opt := range opts {
		opt(m)
	}
	m.rejecter = httpmw.New(l, principal, append(m.rejects, httpmw.WithConflict())...)
	return m
}
