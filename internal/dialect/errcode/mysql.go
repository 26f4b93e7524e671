package errcode

import (
	"reflect"
	"strings"
)

// Error numbers of MySQL and MariaDB that decide what happens next.
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
		field := v.FieldByName("Number")
		if !field.IsValid() || field.Kind() != reflect.Uint16 {
			return false
		}
		number, state = uint16(field.Uint()), mysqlState(v.FieldByName("SQLState")) //nolint:gosec // it is one
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
