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
	errSetup = errors.New("idempotency: the database is not set up")
	errTable = fmt.Errorf("%w: the table latchkey_responses is missing, or is not as idempotency.Schema makes it (a unique key, InnoDB),"+
		" or is not in the search_path or the database that the connection string names, or the role lacks SELECT, INSERT, UPDATE or DELETE on it", errSetup)
	errDriver = fmt.Errorf("%w: the driver cannot begin a transaction with WithTxOptions, send a statement, or read its result", errSetup)
)

// mistakeOf returns mistake, and why the driver says so.
func mistakeOf(mistake, err error) error { return fmt.Errorf("%w: %w", mistake, dialect.Fail(err)) }

// tableMistakes are the codes of a table that is not there, of one that is not
// ours, and of missing rights.
var tableMistakes = []string{
	errcode.UndefinedTable, errcode.UndefinedColumn, "42804", "42P10", errcode.Forbidden,
	"mysql 1046", "mysql 1146", "mysql 1054", "mysql 1364", "mysql 1142", "mysql 1143",
}

// isTableMistake reports whether a statement failed because of the table. SQLite
// has one code for all mistakes in a statement, and only its text distinguishes
// them.
func isTableMistake(code string, err error) bool {
	said := func(text string) bool { return strings.Contains(err.Error(), text) }
	return slices.Contains(tableMistakes, code) ||
		code == sqliteGeneral && (said("no such table") || said("column") || said("ON CONFLICT clause"))
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
	if isTableMistake(code, err) {
		return mistakeOf(errTable, err)
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

// isEffectMistake reports whether a statement failed because of the handler.
func isEffectMistake(code string, err error) bool {
	return slices.Contains(effectMistakes, code) ||
		code == sqliteGeneral && strings.Contains(err.Error(), "no such savepoint")
}

// effectError is storeError for statements after the handler.
func effectError(err error) error {
	code := errcode.Of(err)
	switch {
	case err == nil, errors.Is(err, ErrTxUnusable):
		return err
	case errors.Is(err, sql.ErrTxDone), isEffectMistake(code, err):
		return mistakeOf(ErrTxUnusable, err)
	case code == sqliteConstraint || len(code) == 5 && strings.HasPrefix(code, "23"): // MySQL has none at the commit
		return fmt.Errorf("%w: the effect breaks a constraint that is checked at the commit: %w", ErrTxUnusable, dialect.Fail(err))
	}
	return storeError(err)
}
