package dbconn

import (
	"database/sql"
	"reflect"
	"sync"
	"unsafe"
)

// HasOpenRows reports whether rows of a query in tx are still open, or another
// goroutine is in a statement of tx. With most drivers the next statement fails
// then, and its error looks like that of a lost connection.
//
// database/sql keeps a lock for the rows, in a field that is not exported. If
// the field has another name one day, HasOpenRows reports false.
func HasOpenRows(tx *sql.Tx) bool {
	field := reflect.ValueOf(tx).Elem().FieldByName("closemu")
	if !field.IsValid() || field.Type() != reflect.TypeFor[sync.RWMutex]() {
		return false
	}
	open := (*sync.RWMutex)(unsafe.Pointer(field.UnsafeAddr()))
	if !open.TryLock() {
		return true
	}
	open.Unlock()
	return false
}
