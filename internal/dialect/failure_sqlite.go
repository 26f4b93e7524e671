package dialect

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// SQLite's primary result codes that mean something to us (sqlite.org/rescode.html).
const (
	sqliteBusy     = 5
	sqliteLocked   = 6
	sqliteReadOnly = 8
	sqliteIOError  = 10
	sqliteCorrupt  = 11
	sqliteFull     = 13
	sqliteCantOpen = 14
	sqliteNotADB   = 26

	sqliteCheck = 19 | 1<<8 // extended: a CHECK constraint
)

// sqliteCode is the result code in err of a driver of SQLite, extended where the
// driver gives that, by a method or a field Code. No driver is imported; they
// are known by the name of their package.
func sqliteCode(err error) (code int, ok bool) {
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

// sqliteFailure is what a result code means.
func sqliteFailure(code int) *Failure {
	f := &Failure{Kind: Statement}
	switch code & 0xff {
	case sqliteBusy, sqliteLocked:
		f.Reason = "the database file is locked by another connection's transaction"
	case sqliteReadOnly:
		f.Reason = "the database file, or its directory, can only be read"
	case sqliteIOError:
		f.Reason = "the database file could not be read or written: an error of the disk or file system"
	case sqliteCorrupt, sqliteNotADB:
		f.Lasting = true
		f.Kind, f.Reason = Gone, "the database file is damaged, or is not one of SQLite"
	case sqliteFull:
		f.Kind, f.Reason = Full, "the disk is full, or the database file is as large as it may be"
	case sqliteCantOpen:
		f.Kind, f.Reason = Gone, "the database file could not be opened: is its directory there, and may it be written to?"
	default:
		f.Reason = "SQLite answered with result code " + strconv.Itoa(code)
	}
	return f
}
