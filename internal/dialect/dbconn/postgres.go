package dbconn

import (
	"database/sql"
	"fmt"
	"reflect"
)

// HandshakePID returns the id of the server process as the protocol's handshake
// told it (BackendKeyData), if the driver shows it. A proxy invents its own id.
func HandshakePID(conn *sql.Conn) (pid int64, known bool) {
	_ = conn.Raw(func(c any) error {
		defer func() {
			if recover() != nil {
				known = false
			}
		}()
		c = unwrap(c)
		if v := pgConn(c); v.IsValid() {
			if v = result(v.MethodByName("PID")); v.IsValid() && v.CanUint() {
				pid, known = int64(v.Uint()), true
				return nil
			}
		}
		if v := pqField(c, "pid", "processID"); v.IsValid() && v.CanInt() {
			pid, known = v.Int(), true
		}
		return nil
	})
	return pid, known
}

// pgConn returns what Conn().PgConn() of pgx v5's stdlib.Conn returns, and the
// zero Value for another driver's connection.
func pgConn(c any) reflect.Value {
	v := pgxConn(c)
	if v.IsValid() {
		v = result(v.MethodByName("PgConn"))
	}
	return v
}

// IsIdle reports whether conn is in no transaction, if the driver shows the
// status that comes with each response.
func IsIdle(conn *sql.Conn) (idle, known bool) {
	_ = conn.Raw(func(c any) error {
		defer func() {
			if recover() != nil { // a driver that looks like one we know, and is not
				idle, known = false, false
			}
		}()
		c = unwrap(c)
		const ready = 'I'
		if v := pqField(c, "txnStatus"); v.IsValid() && v.CanUint() {
			idle, known = v.Uint() == ready, true
			return nil
		}
		if v := pgConn(c); v.IsValid() {
			if conn, ok := reflect.TypeAssert[interface{ TxStatus() byte }](v); ok {
				idle, known = conn.TxStatus() == ready, true
			}
		}
		return nil
	})
	return idle, known
}

// PgxQueryMode returns the query mode of a connection of pgx v5, by its name in
// pgx.
func PgxQueryMode(conn *sql.Conn) (mode string, known bool) {
	_ = conn.Raw(func(c any) error {
		defer func() {
			if recover() != nil { // a driver that looks like pgx, and is not
				known = false
			}
		}()
		config := pgxConn(unwrap(c))
		if config.IsValid() {
			config = result(config.MethodByName("Config"))
		}
		if !config.IsValid() {
			return nil
		}
		text, ok := reflect.TypeAssert[fmt.Stringer](config.Elem().FieldByName("DefaultQueryExecMode"))
		if ok {
			mode, known = text.String(), true
		}
		return nil
	})
	return mode, known
}
