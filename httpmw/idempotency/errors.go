package idempotency

import (
	"errors"
	"fmt"
)

// Errors with which a [Middleware] rejects or fails a request, for
// [httpmw.WithRejectHandler]. Others are the errors of
// [ratelimit.Limiter.Acquire], [httpmw.ErrNoKey] and [httpmw.ErrInterrupted].
//
// Compare with errors.Is. No error holds a key. If the database is away, or the
// pool is in use, the error matches [sqllock.ErrUnavailable]. If it is an error
// of the server, errors.As finds one with a method SQLState() string.
var (
	// ErrOtherPayload reports that the key was used with another payload. The
	// response is 422.
	ErrOtherPayload = errors.New("idempotency: the key was used with another payload")

	// ErrBodyTooLarge reports that the request's body has more bytes than
	// [WithMaxBody] allows. The response is 413.
	ErrBodyTooLarge = errors.New("idempotency: the request's body is too large")

	// ErrResponseTooLarge reports that the handler's response has more bytes
	// than [WithMaxResponse] allows. The effect is rolled back, and the
	// response is 500.
	ErrResponseTooLarge = errors.New("idempotency: the handler's response is too large to be stored: see WithMaxResponse")

	// ErrTxUnusable reports that the handler's transaction has ended or failed
	// before its time:
	//
	//   - The handler has ended it. In MySQL and MariaDB, DDL does that.
	//   - The handler wrote a success after the database had failed the
	//     transaction. In MySQL and MariaDB, a deadlock does that.
	//   - The effect breaks a constraint that is checked at the commit.
	//
	// What the handler had not committed is rolled back. What it had committed
	// is not done again. The response is 500.
	ErrTxUnusable = errors.New("idempotency: the handler left its transaction ended or failed: it must not commit or roll back the transaction of idempotency.Tx, nor write a success after an error of it; in MySQL and MariaDB, DDL commits it")

	// ErrNoRoute reports that the request has no route. The response is 500.
	ErrNoRoute = errors.New("idempotency: the request has no route: put the middleware inside of the mux, or pass WithRoute")

	// ErrBodyConsumed reports that a handler around has read the body, so that
	// it cannot be compared. An empty body of unknown length looks the same.
	// The response is 500.
	ErrBodyConsumed = errors.New("idempotency: the request's body or form was read before: put the middleware outside of what reads it")
)

// errBadBody reports that reading the body failed.
var errBadBody = errors.New("idempotency: the request's body could not be read")

// errNoResponse reports a row without a response. Only a handler that commits
// by itself leaves one.
var errNoResponse = fmt.Errorf("%w (it did so in an earlier request with this key, whose response was not stored)", ErrTxUnusable)

// errSwitched reports a 101. The connection stays with net/http, so the handler
// has nothing to switch.
var errSwitched = errors.New("idempotency: the handler wrote 101: it cannot switch protocols here")

// errShortIDs reports a limiter that accepts no ids of 64 bytes.
var errShortIDs = errors.New("idempotency: the limiter's WithMaxIDLen must be at least 64")
