package httpmw

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Errors by which an [Idempotency] rejects or fails a request, for
// [WithRejectHandler]. Others are those of [ratelimit.Limiter.Acquire] and
// [ErrNoKey]. None holds a key. If the database is away, or the pool is in use, the
// error matches sqllock.ErrUnavailable. An error of the server has an SQLState method.
var (
	// ErrOtherPayload: the key was used with another payload. 422.
	ErrOtherPayload = errors.New("httpmw: the idempotency key was used with another payload")

	// ErrBodyTooLarge: the payload has more bytes than [WithMaxBody] allows. 413.
	ErrBodyTooLarge = errors.New("httpmw: the request's body is too large")

	// ErrAnswerTooLarge: the handler's answer has more bytes than
	// [WithMaxAnswer] allows. Its effect was rolled back. 500.
	ErrAnswerTooLarge = errors.New("httpmw: the handler's answer is too large to be stored: see WithMaxAnswer")

	// ErrTxUnusable: the transaction is not the handler's any more. The handler has
	// ended it; or wrote a success after the database had failed it; or broke a
	// constraint that is checked at the commit. In MySQL and MariaDB, DDL ends it, and a
	// deadlock fails it. What the handler had not committed is rolled back, and what it
	// had is not done again. 500.
	ErrTxUnusable = errors.New("httpmw: the handler left its transaction ended or failed: it must not commit or roll back EffectTx's transaction, nor write a success after an error of it; in MySQL and MariaDB, DDL commits it")

	// ErrNoRoute: it cannot be told which route the request is for. 500.
	ErrNoRoute = errors.New("httpmw: the request has no route: put the Idempotency inside of the mux, or pass WithRoute")

	// ErrBodyConsumed: a handler around has read the body, so that the Idempotency
	// cannot compare it. An empty body of unknown length looks the same. 500.
	ErrBodyConsumed = errors.New("httpmw: the request's body or form was read before: put the Idempotency outside of what reads it")
)

var errBadBody = errors.New("httpmw: the request's body could not be read")

// errNoAnswer: the row is there, without an answer. Only a handler that commits by
// itself leaves one.
var errNoAnswer = fmt.Errorf("%w (it did so in an earlier request with this key, whose answer was not stored)", ErrTxUnusable)

// errSwitched: the connection stays net/http's, so that there is nothing to switch to.
var errSwitched = errors.New("httpmw: the handler wrote 101: it cannot switch protocols inside of an Idempotency")

// errShortIDs: ids of 64 bytes are too long for the limiter.
var errShortIDs = errors.New("httpmw: an Idempotency needs a limiter whose WithMaxIDLen is 64 at least")

// errOtherTable: the table lets a key in twice, or rolls nothing back.
var errOtherTable = fmt.Errorf("%w: %s: a unique key, and InnoDB", errWiring, otherTable)

// errTxOptions: no request gets a transaction.
var errTxOptions = fmt.Errorf("%w: the driver cannot begin a transaction with WithTxOptions: pass an isolation level that it knows", errWiring)

// A statementError is an error that the database gave, without its text, which may
// quote what was sent.
type statementError struct {
	code  string // as errcode.Of has it
	what  string
	state string // the SQLSTATE, where there is one
	kind  error  // what it matches besides, or nil
}

func (e *statementError) Error() string { return "httpmw: " + e.what + " (" + inWords(e.code) + ")" }

// SQLState is the server's code; "" if it has none, as SQLite.
func (e *statementError) SQLState() string { return e.state }

func (e *statementError) Unwrap() error { return e.kind }

// inWords is a code as people look it up.
func inWords(code string) string {
	switch {
	case strings.HasPrefix(code, "mysql "):
		return "MySQL's error " + strings.TrimPrefix(code, "mysql ")
	case strings.HasPrefix(code, "sqlite "):
		return "SQLite's result code " + strings.TrimPrefix(code, "sqlite ")
	}
	return "SQLSTATE " + code
}

// Codes that decide what becomes of a request.
const (
	lockNotAvailable = "55P03"
	mysqlLockTimeout = "mysql 1205"
	mysqlDuplicate   = "mysql 1062"
	deadlocked       = "mysql 1213"
	sqliteConstraint = "sqlite 19"
	sqliteGeneral    = "sqlite 1"
)

// wiringErrors say what to change in the service's setup.
var wiringErrors = map[string]string{
	"42P01": "there is no table latchkey_answers in the search_path: create it with IdempotencySchema",
	"42703": otherTable,
	"42804": otherTable,
	"42P10": otherTable,
	"42501": noRights,

	"mysql 1146": "there is no table latchkey_answers in the database: create it with IdempotencySchema",
	"mysql 1054": otherTable,
	"mysql 1364": otherTable,
	"mysql 1142": noRights,
	"mysql 1143": noRights,
	"mysql 1046": "the connection string of the pool names no database: name the one with the table latchkey_answers",
}

const (
	otherTable = "the table latchkey_answers is not as IdempotencySchema makes it"
	noRights   = "the role needs SELECT, INSERT, UPDATE and DELETE on the table latchkey_answers"
)

// statementErrors say why the database cannot do it now.
var statementErrors = map[string]string{
	"25006":      readOnly,
	"mysql 1290": readOnly,
	"mysql 1792": readOnly,
	"mysql 1836": readOnly,
	"sqlite 8":   readOnly,
	"sqlite 5":   "another transaction keeps the database file, and SQLite has one writer at a time",
}

const readOnly = "the database is read-only"

// effectErrors are in place of both after the handler.
var effectErrors = map[string]string{
	"42P01": "the table latchkey_answers is gone since the request began",
	"42501": "the role may not use the table latchkey_answers any more: the handler must not leave its transaction with another role (SET ROLE)",
	"25P03": "the transaction was idle for too long and is rolled back: see WithMaxIdle",
}

// txGone are the codes of a transaction that the handler has ended or failed.
var txGone = []string{
	"25P02", // failed before our statement
	"25P01", // no transaction
	"3B001", // no savepoint
	"mysql 1305",
}

// errNoReply: the server may be frozen, or the network silent.
var errNoReply = fmt.Errorf("%w: the answer's transaction got no reply in time", sqllock.ErrUnavailable)

// errNoTx: no statement was sent, so nothing is in doubt.
var errNoTx = fmt.Errorf("%w: no transaction could be begun within %v: the database is away, or all of its pool is in use",
	sqllock.ErrUnavailable, claimPatience)

// storeError is err of a statement of ours without the driver's own, whose text
// names hosts and users.
func storeError(err error) error {
	code := serverCode(err)
	switch {
	case err == nil, errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, errWiring):
		return err
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: the stored answer was just forgotten, or just stored", sqllock.ErrUnavailable)
	case code == "":
		return fmt.Errorf("%w: the answer's transaction got no reply (or the handler has left rows of it open)", sqllock.ErrUnavailable)
	}
	if what := wiringError(code, err); what != "" {
		return &statementError{code, what, errcode.SQLState(err), errWiring}
	}
	what, ok := statementErrors[code]
	if !ok {
		what = "the database did not carry out the answer's transaction"
	}
	return &statementError{code, what, errcode.SQLState(err), nil}
}

// wiringError says what to change; "" if nothing is wrong with the setup. SQLite has
// one code for all mistakes in a statement, and tells them apart by its text.
func wiringError(code string, err error) string {
	switch {
	case code != sqliteGeneral:
		return wiringErrors[code]
	case strings.Contains(err.Error(), "no such table"):
		return "there is no table latchkey_answers in the database file: create it with IdempotencySchema"
	case strings.Contains(err.Error(), "column"), strings.Contains(err.Error(), "ON CONFLICT clause"):
		return otherTable
	}
	return ""
}

// effectError is storeError for what follows the handler.
func effectError(err error) error {
	code := serverCode(err)
	switch {
	case errors.Is(err, ErrTxUnusable), errors.Is(err, sql.ErrTxDone), slices.Contains(txGone, code),
		code == sqliteGeneral && strings.Contains(err.Error(), "no such savepoint"):
		return ErrTxUnusable
	case isConstraint(code):
		return &statementError{
			code, "the effect breaks a constraint that is checked at the commit, and is rolled back",
			errcode.SQLState(err), ErrTxUnusable,
		}
	case effectErrors[code] != "":
		return &statementError{code, effectErrors[code], errcode.SQLState(err), nil}
	}
	return storeError(err)
}

// isConstraint reports whether a commit has met a constraint; MySQL checks none there.
func isConstraint(code string) bool {
	return code == sqliteConstraint || len(code) == 5 && strings.HasPrefix(code, "23")
}
