package dbconn

import (
	"database/sql"
	"database/sql/driver"
	"reflect"
	"unsafe"
)

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
