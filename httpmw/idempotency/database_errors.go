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

// A statementError is an error that the database gave, without its text, which may
// quote what was sent.
type statementError struct {
	code  string // as errcode.Of has it
	what  string
	state string // the SQLSTATE, where there is one
	kind  error  // what it matches besides, or nil
}

func (e *statementError) Error() string {
	return "idempotency: " + e.what + " (" + inWords(e.code) + ")"
}

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
	"42P01": "the table latchkey_responses is gone since the request began",
	"42501": "the role may not use the table latchkey_responses any more: the handler must not leave its transaction with another role (SET ROLE)",
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
	sqllock.ErrUnavailable, claimTimeout)

// storeError is err of a statement of ours without the driver's own, whose text
// names hosts and users.
func storeError(err error) error {
	code := serverCode(err)
	switch {
	case err == nil, errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, errSetup):
		return err
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: the stored answer was just forgotten, or just stored", sqllock.ErrUnavailable)
	case code == "":
		return fmt.Errorf("%w: the answer's transaction got no reply (or the handler has left rows of it open)", sqllock.ErrUnavailable)
	}
	if what := setupError(code, err); what != "" {
		return &statementError{code, what, errcode.SQLState(err), errSetup}
	}
	what, ok := statementErrors[code]
	if !ok {
		what = "the database did not carry out the answer's transaction"
	}
	return &statementError{code, what, errcode.SQLState(err), nil}
}

// setupError says what to change; "" if nothing is wrong with the setup. SQLite has
// one code for all mistakes in a statement, and tells them apart by its text.
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
