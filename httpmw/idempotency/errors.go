package idempotency

import (
	"errors"
	"fmt"
)

// Errors by which an [Idempotency] rejects or fails a request, for
// [WithRejectHandler]. Others are those of [ratelimit.Limiter.Acquire] and
// [ErrNoKey]. None holds a key. If the database is away, or the pool is in use, the
// error matches sqllock.ErrUnavailable. An error of the server has an SQLState method.
var (
	// ErrOtherPayload: the key was used with another payload. 422.
	ErrOtherPayload = errors.New("idempotency: the idempotency key was used with another payload")

	// ErrBodyTooLarge: the payload has more bytes than [WithMaxBody] allows. 413.
	ErrBodyTooLarge = errors.New("idempotency: the request's body is too large")

	// ErrResponseTooLarge: the handler's answer has more bytes than
	// [WithMaxResponse] allows. Its effect was rolled back. 500.
	ErrResponseTooLarge = errors.New("idempotency: the handler's answer is too large to be stored: see WithMaxResponse")

	// ErrTxUnusable: the transaction is not the handler's any more. The handler has
	// ended it; or wrote a success after the database had failed it; or broke a
	// constraint that is checked at the commit. In MySQL and MariaDB, DDL ends it, and a
	// deadlock fails it. What the handler had not committed is rolled back, and what it
	// had is not done again. 500.
	ErrTxUnusable = errors.New("idempotency: the handler left its transaction ended or failed: it must not commit or roll back Tx's transaction, nor write a success after an error of it; in MySQL and MariaDB, DDL commits it")

	// ErrNoRoute: it cannot be told which route the request is for. 500.
	ErrNoRoute = errors.New("idempotency: the request has no route: put the Idempotency inside of the mux, or pass WithRoute")

	// ErrBodyConsumed: a handler around has read the body, so that the Idempotency
	// cannot compare it. An empty body of unknown length looks the same. 500.
	ErrBodyConsumed = errors.New("idempotency: the request's body or form was read before: put the Idempotency outside of what reads it")
)

var errBadBody = errors.New("idempotency: the request's body could not be read")

// errNoAnswer: the row is there, without an answer. Only a handler that commits by
// itself leaves one.
var errNoAnswer = fmt.Errorf("%w (it did so in an earlier request with this key, whose answer was not stored)", ErrTxUnusable)

// errSwitched: the connection stays net/http's, so that there is nothing to switch to.
var errSwitched = errors.New("idempotency: the handler wrote 101: it cannot switch protocols inside of an Idempotency")

// errShortIDs: ids of 64 bytes are too long for the limiter.
var errShortIDs = errors.New("idempotency: an Idempotency needs a limiter whose WithMaxIDLen is 64 at least")

// errOtherTable: the table lets a key in twice, or rolls nothing back.
var errOtherTable = fmt.Errorf("%w: %s: a unique key, and InnoDB", errSetup, otherTable)

// errTxOptions: no request gets a transaction.
var errTxOptions = fmt.Errorf("%w: the driver cannot begin a transaction with WithTxOptions: pass an isolation level that it knows", errSetup)
