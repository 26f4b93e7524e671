package dbconn

import (
	"database/sql"
	"fmt"
	"reflect"
	"time"
)

// HandshakePID returns the id of the server process as the protocol's handshake
// told it (BackendKeyData), if the driver shows it. A proxy invents its own id.
func HandshakePID(conn *sql.Conn) (pid int64, known bool) {
	return inside(conn, func(c any) (int64, bool) {
		if v := pgConn(c); v.IsValid() {
			if v = result(v.MethodByName("PID")); v.IsValid() && v.CanUint() {
				return int64(v.Uint()), true
			}
		}
		if v := pqField(c, "pid", "processID"); v.IsValid() && v.CanInt() {
			return v.Int(), true
		}
		return 0, false
	})
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
	return inside(conn, func(c any) (idle, known bool) {
		const ready = 'I'
		if v := pqField(c, "txnStatus"); v.IsValid() && v.CanUint() {
			return v.Uint() == ready, true
		}
		v := pgConn(c)
		if !v.IsValid() {
			return false, false
		}
		pgx, ok := reflect.TypeAssert[interface{ TxStatus() byte }](v)
		return ok && pgx.TxStatus() == ready, ok
	})
}

// PgxQueryMode returns the query mode of a connection of pgx v5, by its name in
// pgx.
func PgxQueryMode(conn *sql.Conn) (mode string, known bool) {
	return inside(conn, func(c any) (string, bool) {
		config := pgxConfig(c)
		if !config.IsValid() {
			return "", false
		}
		text, ok := reflect.TypeAssert[fmt.Stringer](config.FieldByName("DefaultQueryExecMode"))
		if !ok {
			return "", false
		}
		return text.String(), true
	})
}

// pgxConfig returns the configuration of a connection of pgx v5, and the zero
// Value for another driver's connection.
func pgxConfig(c any) reflect.Value {
	config := pgxConn(c)
	if config.IsValid() {
		config = result(config.MethodByName("Config"))
	}
	if config.IsValid() {
		config = config.Elem()
	}
	return config
}

// IsOfPool reports whether the driver of conn has a pool of its own, whose size
// the *sql.DB does not show. stdlib.OpenDBFromPool of pgx makes such a *sql.DB.
// Its connections have no configuration of their own.
func IsOfPool(conn *sql.Conn) bool {
	of, _ := inside(conn, func(c any) (bool, bool) {
		config := fieldOf(c, pgxStdlib, "connConfig")
		return config.IsValid() && config.IsZero(), true
	})
	return of
}

// ConnectSettings are the settings of a connection string that decide whether a
// Session finds its way back after an outage. They hold no host, user or
// password.
type ConnectSettings struct {
	Timeout   time.Duration // of a connection attempt; 0 or less: none
	Hosts     int           // how many the string names
	AnyServer bool          // a server that is no primary is accepted, too
	MayHang   bool          // without a Timeout the driver waits for ever in a handshake
}

// ConnectSettingsOf reads the settings that conn, of pgx v5 or lib/pq, was made
// with. known is false for another driver.
func ConnectSettingsOf(conn *sql.Conn) (s ConnectSettings, known bool) {
	return inside(conn, func(c any) (ConnectSettings, bool) {
		if s, known := pgxSettings(c); known {
			return s, true
		}
		return pqSettings(c)
	})
}

// pgxSettings reads the exported fields of the configuration of pgx. A fallback
// is another host, or the same one with or without TLS.
func pgxSettings(c any) (s ConnectSettings, known bool) {
	config := pgxConfig(c)
	if !config.IsValid() {
		return s, false
	}
	config = config.FieldByName("Config")
	s.Timeout = time.Duration(config.FieldByName("ConnectTimeout").Int())
	s.AnyServer = config.FieldByName("ValidateConnect").IsNil()
	address := func(c reflect.Value) string { return fmt.Sprint(c.FieldByName("Host"), c.FieldByName("Port")) }
	hosts := map[string]bool{address(config): true}
	fallbacks := config.FieldByName("Fallbacks")
	for i := range fallbacks.Len() {
		hosts[address(fallbacks.Index(i).Elem())] = true
	}
	s.Hosts = len(hosts)
	return s, true
}

// pqSettings reads unexported fields of lib/pq. Versions before 1.11 keep the
// settings as texts, and know one host only.
func pqSettings(c any) (s ConnectSettings, known bool) {
	s.MayHang, s.Hosts = true, 1
	if texts := pqField(c, "opts"); texts.IsValid() && texts.Kind() == reflect.Map {
		s.AnyServer = true
		if text := texts.MapIndex(reflect.ValueOf("connect_timeout")); text.IsValid() {
			s.Timeout, _ = time.ParseDuration(text.String() + "s")
		}
		return s, true
	}
	config := pqField(c, "cfg")
	if !config.IsValid() || config.Kind() != reflect.Struct {
		return s, false
	}
	s.Timeout = time.Duration(config.FieldByName("ConnectTimeout").Int())
	s.Hosts += config.FieldByName("Multi").Len()
	attributes := config.FieldByName("TargetSessionAttrs").String()
	s.AnyServer = attributes == "" || attributes == "any"
	return s, true
}
