package idempotency

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A statementError is an error of the database without the server's own text,
// which may quote keys and payloads.
type statementError struct {
	code  string // as errcode.Of returns it
	what  string // what has failed, or what to change
	state string // the SQLSTATE, or "" where there is none
	kind  error  // an error that it matches, or nil
}

func (e *statementError) Error() string {
	return "idempotency: " + e.what + " (" + inWords(e.code) + ")"
}

// SQLState returns the server's code, or "" if it has none, like SQLite.
func (e *statementError) SQLState() string { return e.state }

func (e *statementError) Unwrap() error { return e.kind }

// inWords returns code as people look it up.
func inWords(code string) string {
	switch {
	case strings.HasPrefix(code, "mysql "):
		return "MySQL's error " + strings.TrimPrefix(code, "mysql ")
	case strings.HasPrefix(code, "sqlite "):
		return "SQLite's result code " + strings.TrimPrefix(code, "sqlite ")
	}
	return "SQLSTATE " + code
}

// Codes that decide what happens to a request.
const (
	lockNotAvailable = "55P03"
	idleForTooLong   = "57P05" // in the pool, so no statement was carried out
	mysqlLockTimeout = "mysql 1205"
	mysqlDuplicate   = "mysql 1062"
	deadlocked       = "mysql 1213"
	sqliteConstraint = "sqlite 19"
	sqliteGeneral    = "sqlite 1"
)

// errOtherTable reports a table that accepts a key twice, or rolls nothing
// back.
var errOtherTable = fmt.Errorf("%w: %s: a unique key, and InnoDB", errSetup, otherTable)

// errTxOptions reports options with which no transaction can begin.
var errTxOptions = fmt.Errorf("%w: the driver cannot begin a transaction with WithTxOptions: pass an isolation level that it knows", errSetup)

// setupErrors say what to change in the service's setup.
var setupErrors = map[string]string{
	"42P01": "there is no table latchkey_responses in the search_path: create it with idempotency.Schema",
	"42703": otherTable,
	"42804": otherTable,
	"42P10": otherTable,
	"42501": noRights,

	"mysql 1146": "there is no table latchkey_responses in the database: create it with idempotency.Schema",
	"mysql 1054": otherTable,
	"mysql 1364": otherTable,
	"mysql 1142": noRights,
	"mysql 1143": noRights,
	"mysql 1046": "the connection string of the pool names no database: name the one with the table latchkey_responses",
}

const (
	otherTable = "the table latchkey_responses is not as idempotency.Schema makes it"
	noRights   = "the role needs SELECT, INSERT, UPDATE and DELETE on the table latchkey_responses"
)

// statementErrors say why a statement cannot succeed now.
var statementErrors = map[string]string{
	"25006":      readOnly,
	"25P03":      "the transaction was idle for too long (idle_in_transaction_session_timeout)",
	"25P04":      "the transaction took too long (transaction_timeout)",
	"57014":      "a statement was cancelled, or took too long (statement_timeout)",
	"57P05":      "the connection was idle for too long in the pool (idle_session_timeout)",
	"53100":      fullDisk,
	"sqlite 13":  fullDisk,
	"mysql 1290": readOnly,
	"mysql 1792": readOnly,
	"mysql 1836": readOnly,
	"sqlite 8":   readOnly,
	"sqlite 5":   "another transaction keeps the database file, and SQLite has one writer at a time",
}

const (
	readOnly = "the database is read-only"
	fullDisk = "the disk of the database is full"
)

// effectErrors replace setupErrors and statementErrors after the handler has
// run.
var effectErrors = map[string]string{
	"42P01": "the table latchkey_responses is gone since the request began",
	"42501": "the role may not use the table latchkey_responses any more: the handler must not leave its transaction with another role (SET ROLE)",
	"25P03": "the transaction was idle for too long and is rolled back: see WithMaxIdle",
}

// txGone are the codes that report a transaction which the handler has ended or
// failed.
var txGone = []string{
	"25P02", // failed before our statement
	"25P01", // no transaction
	"3B001", // no savepoint
	"mysql 1305",
}

// errNoReply reports a step that was given up. The server may be frozen, or the
// network silent.
var errNoReply = fmt.Errorf("%w: the transaction of the response got no reply in time", sqllock.ErrUnavailable)

// errNoTx reports that no statement was sent, so nothing is in doubt.
var errNoTx = fmt.Errorf("%w: no transaction could be begun within %v: the database is away, or all of its pool is in use",
	sqllock.ErrUnavailable, claimTimeout)

// storeError returns err, of a statement of the store, without the driver's own
// error, whose text names hosts and users.
func storeError(err error) error {
	code := serverCode(err)
	switch {
	case err == nil, errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, errSetup):
		return err
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: the stored response was just forgotten, or just stored", sqllock.ErrUnavailable)
	case code == "":
		return fmt.Errorf("%w: the transaction of the response got no reply (or the handler has left rows of it open)", sqllock.ErrUnavailable)
	}
	if what := setupError(code, err); what != "" {
		return &statementError{code, what, errcode.SQLState(err), errSetup}
	}
	what, ok := statementErrors[code]
	if !ok {
		what = "the database did not carry out the transaction of the response"
	}
	return &statementError{code, what, errcode.SQLState(err), nil}
}

// setupError returns what to change, or "" if the setup is right. SQLite has
// one code for all mistakes in a statement, and only its text distinguishes
// them.
func setupError(code string, err error) string {
	switch {
	case code != sqliteGeneral:
		return setupErrors[code]
	case strings.Contains(err.Error(), "no such table"):
		return "there is no table latchkey_responses in the database file: create it with idempotency.Schema"
	case strings.Contains(err.Error(), "column"), strings.Contains(err.Error(), "ON CONFLICT clause"):
		return otherTable
	}
	return ""
}

// effectError is storeError for statements after the handler.
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

// isConstraint reports whether code is that of a constraint that is checked at
// the commit. MySQL has none.
func isConstraint(code string) bool {
	return code == sqliteConstraint || len(code) == 5 && strings.HasPrefix(code, "23")
}
