// Package errcode reads the codes of databases from drivers' errors.
//
// It imports no driver. It knows their errors by the method SQLState and,
// through reflection, by the fields and methods of their types.
package errcode

import (
	"errors"
	"strconv"
)

// Of returns the code that a database gave with err:
//
//	"42P01"       PostgreSQL's SQLSTATE
//	"mysql 1146"  an error number of MySQL or MariaDB
//	"sqlite 5"    a primary result code of SQLite
//	""            err is not a database's response to a statement
func Of(err error) string {
	if number, _, ok := MySQL(err); ok {
		return "mysql " + strconv.Itoa(int(number))
	}
	if code, ok := SQLite(err); ok {
		return "sqlite " + strconv.Itoa(code&0xff)
	}
	return SQLState(err)
}

// SQLState returns the SQLSTATE that the server gave with err, or "".
func SQLState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	_, state, _ := MySQL(err)
	return state
}

// SQLSTATEs of PostgreSQL that decide what happens next.
const (
	FeatureNotSupported  = "0A000"
	FailedTransaction    = "25P02"
	ReadOnly             = "25006"
	DuplicateStatement   = "42P05"
	InvalidStatementName = "26000"
	InvalidSchema        = "3F000"
	Forbidden            = "42501"
	UndefinedColumn      = "42703"
	UndefinedFunction    = "42883"
	UndefinedTable       = "42P01"
	NotInState           = "55000" // of an object; at a login, of the database
	LockNotAvailable     = "55P03"
)
