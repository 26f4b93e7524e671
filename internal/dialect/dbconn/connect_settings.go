package dbconn

import (
	"database/sql"
	"fmt"
	"reflect"
	"time"
)

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
