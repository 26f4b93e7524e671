package idempotency

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Codes that decide what happens to a request, as errcode.Of returns them.
const (
	lockNotAvailable = errcode.LockNotAvailable
	mysqlLockTimeout = "mysql 1205"
	mysqlDuplicate   = "mysql 1062"
	mysqlDeadlock    = "mysql 1213"
	sqliteConstraint = "sqlite 19"
	sqliteGeneral    = "sqlite 1"
)

// Mistakes of the service's setup, which waiting does not correct.
var (
	errSetup      = errors.New("idempotency: the database is not set up")
	errOtherTable = fmt.Errorf("%w: %s: a unique key, and InnoDB", errSetup, otherTable)
	errDriver     = fmt.Errorf("%w: the driver cannot begin a transaction with WithTxOptions, send a statement, or read its result", errSetup)
)

// mistakeOf returns mistake, and why the driver says so.
func mistakeOf(mistake, err error) error { return fmt.Errorf("%w: %w", mistake, dialect.Fail(err)) }

const (
	noTable    = "there is no table latchkey_responses in the search_path, the database or the file: create it with idempotency.Schema"
	otherTable = "the table latchkey_responses is not as idempotency.Schema makes it"
	noRights   = "the role needs SELECT, INSERT, UPDATE and DELETE on the table latchkey_responses"
)

// setupErrors say what to change in the service's setup.
var setupErrors = map[string]string{
	errcode.UndefinedTable:  noTable,
	errcode.UndefinedColumn: otherTable,
	"42804":                 otherTable,
	"42P10":                 otherTable,
	errcode.Forbidden:       noRights,

	"mysql 1146": noTable,
	"mysql 1054": otherTable,
	"mysql 1364": otherTable,
	"mysql 1142": noRights,
	"mysql 1143": noRights,
	"mysql 1046": "the connection string of the pool names no database: name the one with the table latchkey_responses",
}

// setupError returns what to change, or "" if the setup is right. SQLite has
// one code for all mistakes in a statement, and only its text distinguishes
// them.
func setupError(code string, err error) string {
	switch {
	case code != sqliteGeneral:
		return setupErrors[code]
	case strings.Contains(err.Error(), "no such table"):
		return noTable
	case strings.Contains(err.Error(), "column"), strings.Contains(err.Error(), "ON CONFLICT clause"):
		return otherTable
	}
	return ""
}

var (
	// errInFlight reports that another transaction has the key, and goes on.
	errInFlight = errors.New("idempotency: the key is in flight")

	// errNoReply reports a step that was given up. The server may be frozen, or
	// the network silent.
	errNoReply = fmt.Errorf("%w: the transaction of the response got no reply in time", sqllock.ErrUnavailable)

	// errNoTx reports that the key's row was not inserted, so nothing is in
	// doubt.
	errNoTx = fmt.Errorf("%w: no transaction could be begun within %v: the database is away, or all of its pool is in use",
		sqllock.ErrUnavailable, claimTimeout)
)

// noTx returns err, or errNoTx if the database has not responded.
func noTx(err error) error {
	if err == nil || errcode.Of(err) != "" || errors.Is(err, errSetup) {
		return err
	}
	return errNoTx
}

// storeError returns err, of a statement of the store, without the driver's own
// error, whose text names hosts and users, and may quote keys.
func storeError(err error) error {
	code := errcode.Of(err)
	switch {
	case err == nil, errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, errSetup):
		return err
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: the stored response was just forgotten, or just stored", sqllock.ErrUnavailable)
	case code == "":
		return fmt.Errorf("%w: the transaction of the response got no reply", sqllock.ErrUnavailable)
	}
	if what := setupError(code, err); what != "" {
		state := errcode.SQLState(err)
		if state != "" {
			code = "SQLSTATE " + state
		}
		return fmt.Errorf("%w: %w", errSetup, &dialect.Failure{Kind: dialect.Statement, Reason: what + " (" + code + ")", State: state})
	}
	return fmt.Errorf("idempotency: the database did not carry out the transaction of the response: %w", dialect.Fail(err))
}

// effectMistakes are the codes that report what a handler has done to its
// transaction.
var effectMistakes = []string{
	errcode.FailedTransaction,
	"25P01",           // no transaction
	"3B001",           // no savepoint
	errcode.ReadOnly,  // whereas the claim has written
	errcode.Forbidden, // the same
	"mysql 1305",      // no savepoint
}

// effectError is storeError for statements after the handler.
func effectError(err error) error {
	code := errcode.Of(err)
	switch {
	case err == nil, errors.Is(err, ErrTxUnusable):
		return err
	case errors.Is(err, sql.ErrTxDone), slices.Contains(effectMistakes, code),
		code == sqliteGeneral && strings.Contains(err.Error(), "no such savepoint"):
		return mistakeOf(ErrTxUnusable, err)
	case code == sqliteConstraint || len(code) == 5 && strings.HasPrefix(code, "23"): // MySQL has none at the commit
		return fmt.Errorf("%w: the effect breaks a constraint that is checked at the commit: %w", ErrTxUnusable, dialect.Fail(err))
	}
	return storeError(err)
}
