// Package errcode reads the codes of databases from drivers' errors.
//
// It imports no driver. It knows their errors by the method SQLState and,
// through reflection, by the fields and methods of their types.
package errcode

import (
	"errors"
	"reflect"
	"regexp"
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

// findDriverError calls read with the errors in err's chain whose package path
// contains pkg, until read returns true. It reports whether read has. A pointer is
// followed.
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
		if v = v.Elem(); v.IsValid() && strings.Contains(v.Type().PkgPath(), pkg) && read(v) {
			return true
		}
	}
	return false
}

// fieldOf returns the field of v with this name. It is not valid if there is none.
func fieldOf(v reflect.Value, name string) reflect.Value {
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

// denied matches what PostgreSQL says of a function of its own, in English.
var denied = regexp.MustCompile(`permission denied for function (pg_\w+|set_config)`)

// Denied returns the function of PostgreSQL that the role may not call, by the
// text of err. It returns "" if that names none.
func Denied(err error) string {
	if m := denied.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
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
	InvalidTable         = "42P16"
	UndefinedColumn      = "42703"
	UndefinedFunction    = "42883"
	UndefinedTable       = "42P01"
	NotInState           = "55000" // of an object; at a login, of the database
	LockNotAvailable     = "55P03"
)

// Error numbers of MySQL and MariaDB that decide what happens next.
const (
	MySQLNoSuchTable = 1146
	MySQLDenied      = 1142 // a command on a table
	MySQLCheck       = 3819 // a CHECK constraint, in MySQL
	MariaDBCheck     = 4025 // the same in MariaDB
	MySQLOutOfRange  = 1690 // of a sum
	MySQLParse       = 1064 // a statement is not understood: its transaction lives on
)

// MySQLRolledBack are the errors of a statement that had no effect because of
// others: it has waited for a lock for too long, a deadlock, and conflicts in TiDB.
var MySQLRolledBack = []uint16{1205, 1213, 8002, 8022, 9007}

// MySQLNoSetting are the errors of a server that does not have a variable, or
// does not take its value, in a session. 1105 is that of an unknown reason.
var MySQLNoSetting = []uint16{1105, 1193, 1229, 1231, 1232, 1235, 1238, MySQLParse}

// MySQL returns the error number and the SQLSTATE in err, if err is of a driver
// of MySQL or MariaDB.
//
// A driver's error has a field Number of type uint16, and may have a field
// SQLState of type [5]byte. The path of its package contains "mysql". That fits
// github.com/go-sql-driver/mysql and its forks.
func MySQL(err error) (number uint16, state string, ok bool) {
	ok = findDriverError(err, "mysql", func(v reflect.Value) bool {
		field := fieldOf(v, "Number")
		if !field.IsValid() || field.Kind() != reflect.Uint16 {
			return false
		}
		number, state = uint16(field.Uint()), mysqlState(fieldOf(v, "SQLState")) //nolint:gosec // it is one
		return true
	})
	return number, state, ok
}

// mysqlState returns the SQLSTATE in a field of type [5]byte, or that of a
// general error.
func mysqlState(field reflect.Value) string {
	const general = "HY000"
	if !field.IsValid() || field.Type() != reflect.TypeFor[[5]byte]() {
		return general
	}
	state := field.Interface().([5]byte)
	if state == ([5]byte{}) {
		return general
	}
	return string(state[:])
}

// IsTooLarge reports whether go-sql-driver has sent nothing because the
// statement is longer than the server or the connection string allows.
func IsTooLarge(err error) bool {
	return strings.Contains(err.Error(), "packet for query is too large")
}

// Result codes of SQLite that decide what happens next:
// https://sqlite.org/rescode.html.
const (
	SQLiteBusy     = 5
	SQLiteLocked   = 6
	SQLiteReadOnly = 8

	SQLiteCheck = 19 | 1<<8 // extended: a CHECK constraint
)

// SQLite returns the result code in err, if err is of a driver of SQLite. It is
// the extended code if the driver has it.
//
// The driver's error has a method or a field Code. The path of its package
// contains "sqlite".
func SQLite(err error) (code int, ok bool) {
	ok = findDriverError(err, "sqlite", func(v reflect.Value) (found bool) {
		field := fieldOf(v, "Code")
		if method := v.Addr().MethodByName("Code"); method.IsValid() && method.Type().NumIn() == 0 && method.Type().NumOut() == 1 {
			field = method.Call(nil)[0]
		}
		code, found = integer(field)
		return found
	})
	return code, ok
}

// IsBusy reports whether err means that another connection has locked a file of
// SQLite at this moment.
func IsBusy(err error) bool {
	code, ok := SQLite(err)
	return ok && (code&0xff == SQLiteBusy || code&0xff == SQLiteLocked)
}

// IsNoTable reports whether err is SQLite's error for a missing table. It has no
// code of its own.
func IsNoTable(err error) bool {
	_, ok := SQLite(err)
	return ok && strings.Contains(err.Error(), "no such table")
}

// integer returns the value of an integer of any type.
func integer(v reflect.Value) (int, bool) {
	switch {
	case !v.IsValid():
		return 0, false
	case v.CanInt():
		return int(v.Int()), true
	case v.CanUint():
		return int(v.Uint()), true //nolint:gosec // codes are small
	}
	return 0, false
}
