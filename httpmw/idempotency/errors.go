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

	// ErrTxUnusable reports a mistake of the handler, after which its
	// transaction cannot be committed. It has ended the transaction (as DDL does
	// in MySQL), left rows open, another role or READ ONLY, or written a success
	// after a failed statement. Or its effect breaks a constraint that is checked
	// at the commit. What the handler had not committed is rolled back. What it
	// had committed is not done again. The response is 500.
	ErrTxUnusable = errors.New("idempotency: the handler left a transaction that cannot be committed: it must not commit or roll back the transaction of idempotency.Tx, nor leave rows open, another role (SET ROLE) or READ ONLY, nor write a success after an error of it; in MySQL and MariaDB, DDL commits it")

	// ErrNoRoute reports that the request has no route. The response is 500.
	ErrNoRoute = errors.New("idempotency: the request has no route: put the middleware inside of the mux, or pass WithRoute")

	// ErrBodyConsumed reports that a handler around has read the body, so that
	// it cannot be compared. An empty body of unknown length looks the same.
	// The response is 500.
	ErrBodyConsumed = errors.New("idempotency: the request's body or form was read before: put the middleware outside of what reads it")
)

var (
	// errBadBody reports that reading the body failed.
	errBadBody = errors.New("idempotency: the request's body could not be read")

	// errEmptyOrConsumed reports an empty body of unknown length. Only the
	// client knows which of the two it is.
	errEmptyOrConsumed = fmt.Errorf("%w (or the client has sent an empty body without Content-Length: 0)", ErrBodyConsumed)

	// errNoResponse reports a row without a response. Only a handler that
	// commits by itself leaves one.
	errNoResponse = fmt.Errorf("%w (it did so in an earlier request with this key, whose response was not stored)", ErrTxUnusable)

	// errRowsLeft reports that a statement failed after the handler had left
	// rows of a query open.
	errRowsLeft = fmt.Errorf("%w (rows of it are still open)", ErrTxUnusable)

	// errSwitched reports a 101. The connection stays with net/http, so the
	// handler has nothing to switch.
	errSwitched = errors.New("idempotency: the handler wrote 101: it cannot switch protocols here")

	// errShortIDs reports a limiter that accepts no ids of 64 bytes.
	errShortIDs = errors.New("idempotency: the limiter's WithMaxIDLen must be at least 64")
)
