package errcode

import (
	"errors"
	"reflect"
	"strings"
)

// SQLite's primary result codes that mean something to us (sqlite.org/rescode.html).
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

// sqliteCode is the result code in err of a driver of SQLite, extended where the
// driver gives that, by a method or a field Code. No driver is imported; they
// are known by the name of their package.
func SQLite(err error) (code int, ok bool) {
	defer func() {
		if recover() != nil { // what looks like a driver's error, and is not
			ok = false
		}
	}()
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.ValueOf(err)
		if !strings.Contains(reflect.Indirect(v).Type().PkgPath(), "sqlite") {
			continue
		}
		if method := v.MethodByName("Code"); method.IsValid() && method.Type().NumIn() == 0 && method.Type().NumOut() == 1 {
			return integer(method.Call(nil)[0])
		}
		if v = reflect.Indirect(v); v.Kind() == reflect.Struct {
			return integer(v.FieldByName("Code"))
		}
	}
	return 0, false
}

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
