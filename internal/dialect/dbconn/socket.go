// Package dbconn handles connections of database/sql and the drivers below
// them.
//
// It takes connections of a pool and lends them, closes them for good, finds
// the socket below a driver and reads what a driver knows of its session. It
// looks inside drivers by reflection, so that sqllock depends on none. Where it
// finds nothing, the caller goes on without: a Session whose socket is not
// found notices a closed connection at its next heartbeat.
package dbconn

import (
	"database/sql"
	"database/sql/driver"
	"net"
	"reflect"
	"sync"
	"unsafe"
)

// SocketOf finds the socket under conn. It uses find if that is not nil, and
// otherwise looks inside known drivers. It returns nil if there is none.
func SocketOf(conn *sql.Conn, find func(any) net.Conn) net.Conn {
	if find != nil {
		var socket net.Conn
		_ = conn.Raw(func(c any) error {
			defer func() { _ = recover() }() // of the user's function
			socket = find(c)
			return nil
		})
		return socket
	}
	socket, _ := inside(conn, func(c any) (net.Conn, bool) {
		if socket := pgxSocket(c); socket != nil {
			return socket, true
		}
		return unexportedSocket(c), true
	})
	return socket
}

// pgxSocket returns what Conn().PgConn().Conn() of pgx v5's stdlib.Conn
// returns, and nil for another driver's connection.
func pgxSocket(c any) net.Conn {
	v := pgConn(c)
	if v.IsValid() {
		v = result(v.MethodByName("Conn"))
	}
	if !v.IsValid() {
		return nil
	}
	socket, _ := reflect.TypeAssert[net.Conn](v)
	return socket
}

// pgxConn returns what Conn() of pgx v5's stdlib.Conn returns, and the zero
// Value for another driver's connection.
//
// Invariant: each call of MethodByName in this package has a constant name.
// With a variable the linker keeps every exported method of the whole program.
func pgxConn(c any) reflect.Value {
	v := reflect.ValueOf(c)
	if !v.IsValid() {
		return v
	}
	return result(v.MethodByName("Conn"))
}

// result calls method, which must take nothing and return one value. It returns
// the zero Value if method is not such a method.
func result(method reflect.Value) reflect.Value {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}
	}
	return method.Call(nil)[0]
}

// unexportedSocket reads the field c of lib/pq, or rawConn of go-sql-
// driver/mysql. That is the socket itself, even under TLS.
func unexportedSocket(c any) net.Conn {
	field := pqField(c, "c")
	if !field.IsValid() {
		field = fieldOf(c, goMySQL, "rawConn", "netConn")
	}
	if !field.IsValid() || field.Type() != reflect.TypeFor[net.Conn]() {
		return nil
	}
	socket, _ := reflect.TypeAssert[net.Conn](reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem())
	return socket
}

// pqField returns the first of the named fields that a lib/pq connection has.
func pqField(c any, names ...string) reflect.Value { return fieldOf(c, libpq, names...) }

// fieldOf returns the first of the named fields that c has, if c points to a
// struct of the package.
func fieldOf(c any, pkg string, names ...string) reflect.Value {
	if !isOf(c, pkg) {
		return reflect.Value{}
	}
	v := reflect.ValueOf(c)
	for _, name := range names {
		if field := v.Elem().FieldByName(name); field.IsValid() {
			return field
		}
	}
	return reflect.Value{}
}

// The packages of the known drivers.
const (
	pgxStdlib = "github.com/jackc/pgx/v5/stdlib"
	libpq     = "github.com/lib/pq"
	goMySQL   = "github.com/go-sql-driver/mysql"
)

// isOf reports whether c points to a struct of the package.
func isOf(c any, pkg string) bool {
	v := reflect.ValueOf(c)
	return v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct && v.Elem().Type().PkgPath() == pkg
}

// inside calls look with the driver's connection of conn, without its wrappers. It
// returns what look returns, or zero and false if look panics. A driver may look
// like one that we know, and be another.
func inside[T any](conn *sql.Conn, look func(c any) (T, bool)) (value T, known bool) {
	_ = conn.Raw(func(c any) error {
		defer func() {
			if recover() != nil {
				var none T
				value, known = none, false
			}
		}()
		value, known = look(unwrap(c))
		return nil
	})
	return value, known
}

// unwrap removes the layers of tracing wrappers from a driver's connection.
// Some wrappers have a method Raw. Others have a field with the inner
// connection.
func unwrap(c any) any {
	const layers = 8
	for range layers {
		inner := wrapped(c)
		if inner == nil {
			break
		}
		c = inner
	}
	return c
}

// wrapped returns the connection that c wraps, or nil.
func wrapped(c any) driver.Conn {
	if wrapper, ok := c.(interface{ Raw() driver.Conn }); ok {
		return wrapper.Raw()
	}
	if isOf(c, pgxStdlib) || isOf(c, libpq) || isOf(c, goMySQL) {
		return nil
	}
	v := reflect.ValueOf(c)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	} else if v.Kind() == reflect.Struct { // a copy has an address, and so fields that can be read
		of := reflect.New(v.Type()).Elem()
		of.Set(v)
		v = of
	}
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		field := v.Field(i)
		if !field.Type().Implements(reflect.TypeFor[driver.Conn]()) {
			continue
		}
		field = reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
		if isNil(field) {
			continue
		}
		if inner, ok := reflect.TypeAssert[driver.Conn](field); ok {
			return inner
		}
	}
	return nil
}

// isNil reports whether v is a nil interface or pointer.
func isNil(v reflect.Value) bool {
	return (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) && v.IsNil()
}

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
