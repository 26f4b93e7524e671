package errcode

import (
	"errors"
	"reflect"
	"strings"
)

// Error numbers of MySQL and MariaDB that mean something to us.
const (
	MySQLNoSuchTable  = 1146
	MySQLDenied       = 1142 // a command on a table
	MySQLNoAccess     = 1044 // of a user, to a database
	MySQLNoDatabase   = 1049
	MySQLCheck        = 3819 // a CHECK constraint, in MySQL
	MariaDBCheck      = 4025 // the same in MariaDB
	MySQLOutOfRange   = 1690 // of a sum
	MySQLTooMany      = 1040 // connections
	MySQLTooManyOfOne = 1203 // the same, of one user
	MySQLUserLimit    = 1226 // the same, or an hour's statements, by the account's own limit
	MySQLOfflineMode  = 3032
	MySQLShutdown     = 1053
	MySQLKilled       = 1317 // a statement
	MySQLParse        = 1064 // a statement is not understood: its transaction lives on
)

// mysqlError is the number and the SQLSTATE in err of a driver of MySQL or MariaDB,
// which are in fields Number (of 16 bits) and SQLState (of five bytes), as in those of
// github.com/go-sql-driver/mysql and of its forks whose path has "mysql" in it. No driver is
// imported. The error of any other tells nothing, and is taken for the loss of the session.
func MySQL(err error) (number uint16, state string, ok bool) {
	defer func() {
		if recover() != nil { // what looks like a driver's error, and is not
			ok = false
		}
	}()
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct || !strings.Contains(v.Type().PkgPath(), "mysql") {
			continue
		}
		field := v.FieldByName("Number")
		if !field.IsValid() || field.Kind() != reflect.Uint16 {
			continue
		}
		return uint16(field.Uint()), mysqlState(v.FieldByName("SQLState")), true //nolint:gosec // it is one
	}
	return 0, "", false
}

// mysqlState is an SQLSTATE in a field that is five bytes; that of an error without
// one if there is none.
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

// isTooLarge reports whether err is that by which go-sql-driver says that it has sent nothing: a
// statement is longer than the server, or the connection string, allows.
func IsTooLarge(err error) bool {
	return strings.Contains(err.Error(), "packet for query is too large")
}
