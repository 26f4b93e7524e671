package httpmw

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Why an [Idempotency] refuses or fails a request, beside the errors of
// [ratelimit.Limiter.Acquire] and [ErrNoKey]; for [WithRejectHandler]. None holds
// a key. That the database is away is sqllock.ErrUnavailable; an error of the
// server has an SQLState method.
var (
	// ErrOtherPayload: the key was used with another payload. 422.
	ErrOtherPayload = errors.New("httpmw: the idempotency key was used with another payload")

	// ErrBodyTooLarge: the payload has more bytes than [WithMaxBody] allows. 413.
	ErrBodyTooLarge = errors.New("httpmw: the request's body is too large")

	// ErrAnswerTooLarge: the handler's answer has more bytes than
	// [WithMaxAnswer] allows. Its effect was rolled back. 500.
	ErrAnswerTooLarge = errors.New("httpmw: the handler's answer is too large to be stored: see WithMaxAnswer")

	// ErrTxUnusable: the handler has ended its transaction itself, or has answered with
	// success after an error of a statement in it, or what it did breaks a constraint
	// that is checked at the commit. What it had not committed itself is rolled back;
	// what it had is not done again. 500.
	ErrTxUnusable = errors.New("httpmw: the handler left its transaction ended or failed: it must not commit or roll back EffectTx's transaction, nor answer with success after an error of it")

	// ErrInterrupted: the context of the handler ended before the handler wrote a
	// response. Its effect was rolled back and nothing was stored. The cause
	// matches too: [context.Canceled], [sqllock.ErrLost]. 503.
	ErrInterrupted = errors.New("httpmw: the request was interrupted before its handler wrote a response")

	// ErrNoRoute: it cannot be told which route the request is for. 500.
	ErrNoRoute = errors.New("httpmw: the request has no route: put the Idempotency inside of the mux, or pass WithRoute")

	// ErrBodyConsumed: the body was read, all or in part, before the Idempotency could
	// compare it. 500.
	ErrBodyConsumed = errors.New("httpmw: the request's body or form was read before: put the Idempotency outside of what reads it")
)

var errBadBody = errors.New("httpmw: the request's body could not be read")

// errNoAnswer: the row is there, without an answer. Only a handler that commits by
// itself leaves one.
var errNoAnswer = fmt.Errorf("%w (it did so in an earlier request with this key, whose answer was not stored)", ErrTxUnusable)

// errShortIDs: ids of 64 bytes are too long for the limiter.
var errShortIDs = errors.New("httpmw: an Idempotency needs a limiter whose WithMaxIDLen is 64 at least")

// A statementError is an answer of the server, without its text, which may quote
// what was sent.
type statementError struct {
	state, what string
	lasting     bool // a retry will meet with it again
}

func (e *statementError) Error() string {
	return "httpmw: " + e.what + " (SQLSTATE " + e.state + ")"
}

// SQLState is the server's code.
func (e *statementError) SQLState() string { return e.state }

// Is makes errors.Is(err, ErrTxUnusable) hold for what the handler has brought about.
func (e *statementError) Is(target error) bool { return e.lasting && target == ErrTxUnusable }

// statementErrors say what to change.
var statementErrors = map[string]string{
	"42P01": "there is no table latchkey_answers in the search_path: create it with IdempotencySchema",
	"42703": "the table latchkey_answers is not as IdempotencySchema makes it",
	"42804": "the table latchkey_answers is not as IdempotencySchema makes it",
	"42P10": "the table latchkey_answers is not as IdempotencySchema makes it",
	"42501": "the role needs SELECT, INSERT, UPDATE and DELETE on the table latchkey_answers",
	"25006": "the database is read-only",
}

// effectErrors are in place of statementErrors after the handler.
var effectErrors = map[string]string{
	"42P01": "the table latchkey_answers is gone since the request began",
	"42501": "the role may not use the table latchkey_answers any more: the handler must not leave its transaction with another role (SET ROLE)",
	"25P03": "the transaction was idle for too long and is rolled back: see WithMaxIdle",
}

const lockNotAvailable = "55P03"

// errNoReply: the server may be frozen, or the network silent.
var errNoReply = fmt.Errorf("%w: the answer's transaction got no reply in time", sqllock.ErrUnavailable)

// errNoTx: no statement was sent, so nothing is in doubt.
var errNoTx = fmt.Errorf("%w: no transaction could be begun within %v: the database is away, or all of its pool is in use",
	sqllock.ErrUnavailable, claimPatience)

// storeError is err of a statement of ours without the driver's own, whose text
// names hosts and users.
func storeError(err error) error {
	state := sqlState(err)
	switch {
	case err == nil, errors.Is(err, errNoTx), errors.Is(err, errNoReply):
		return err
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: the stored answer was just forgotten, or just stored", sqllock.ErrUnavailable)
	case state == "":
		return fmt.Errorf("%w: the answer's transaction got no reply (or the handler has left rows of it open)", sqllock.ErrUnavailable)
	}
	what, ok := statementErrors[state]
	if !ok {
		what = "the database did not carry out the answer's transaction"
	}
	return &statementError{state: state, what: what}
}

// effectError is storeError for what follows the handler.
func effectError(err error) error {
	state := sqlState(err)
	switch {
	case errors.Is(err, ErrTxUnusable), errors.Is(err, sql.ErrTxDone):
		return ErrTxUnusable
	case state == "25P02", state == "25P01", state == "3B001": // failed before ours; no transaction; no savepoint
		return ErrTxUnusable
	case strings.HasPrefix(state, "23"):
		return &statementError{state, "the effect breaks a constraint that is checked at the commit, and is rolled back", true}
	case effectErrors[state] != "":
		return &statementError{state: state, what: effectErrors[state]}
	}
	return storeError(err)
}

// sqlState is the server's code; "" if err is not the server's.
func sqlState(err error) string {
	var server interface{ SQLState() string }
	if !errors.As(err, &server) {
		return ""
	}
	return server.SQLState()
}
