// Package errcode reads the codes of databases from drivers' errors.
//
// It imports no driver. It knows their errors by the method SQLState and,
// through reflection, by the fields and methods of their types.
package errcode

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
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

// findDriverError calls read with the structs in err's chain whose package path
// contains pkg, until read returns true. It reports whether read has.
func findDriverError(err error, pkg string, read func(reflect.Value) bool) (found bool) {
	defer func() {
		if recover() != nil { // what looks like a driver's error, and is not
			found = false
		}
	}()
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.ValueOf(err)
		if v.Kind() != reflect.Pointer { // a copy has an address, and so the methods of both
			of := reflect.New(v.Type())
			of.Elem().Set(v)
			v = of
		}
		if v = v.Elem(); v.Kind() == reflect.Struct && strings.Contains(v.Type().PkgPath(), pkg) && read(v) {
			return true
		}
	}
	return false
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
