package errcode

import (
	"reflect"
	"strings"
)

// Result codes of SQLite that decide what happens next:
// https://sqlite.org/rescode.html.
const (
	SQLiteBusy     = 5
	SQLiteLocked   = 6
	SQLiteReadOnly = 8
	SQLiteIOError  = 10
	SQLiteCorrupt  = 11
	SQLiteFull     = 13
	SQLiteCantOpen = 14
	SQLiteNotADB   = 26

	SQLiteCheck = 19 | 1<<8 // extended: a CHECK constraint
)

// SQLite returns the result code in err, if err is of a driver of SQLite. It is
// the extended code if the driver has it.
//
// The driver's error has a method or a field Code. The path of its package
// contains "sqlite".
func SQLite(err error) (code int, ok bool) {
	ok = findDriverError(err, "sqlite", func(v reflect.Value) (found bool) {
		field := v.FieldByName("Code")
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
