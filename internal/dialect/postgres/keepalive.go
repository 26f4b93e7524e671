package postgres

import (
	"strconv"
	"time"
)

// The largest values that Linux accepts for a socket.
const (
	longestKeepalive = 32767 // seconds
	mostKeepalives   = 127
)

// cutOff returns the calls by which the server ends the session of a client
// that disappears while the server reads a statement. The idle timeout does not
// run then.
//
// The server's kernel probes a silent connection. It ends the connection when
// the client's kernel has been silent for the lease, and never earlier. On a
// Unix socket these settings have no effect.
//
// PostgreSQL 17 and newer also bounds a transaction whose last message is
// missing. StatementTimeout, which is shorter, ends a transaction that is at
// work.
func cutOff(lease time.Duration) []string {
	seconds := int64((lease + time.Second - 1) / time.Second)
	idle := min(max(seconds/2, 1), longestKeepalive)
	interval := min(max(seconds/10, 1), longestKeepalive)
	count := min(max((seconds-idle+interval-1)/interval, 1), mostKeepalives)
	number := func(n int64) string { return "'" + strconv.FormatInt(n, 10) + "'" }
	set := func(name string, n int64) string {
		return "pg_catalog.set_config('" + name + "', " + number(n) + ", false)"
	}
	return []string{
		set("tcp_keepalives_idle", idle),
		set("tcp_keepalives_interval", interval),
		set("tcp_keepalives_count", count), // counts where there is no tcp_user_timeout
		set("tcp_user_timeout", lease.Milliseconds()),
		"CASE WHEN pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.>=) 170000 THEN " + set("transaction_timeout", lease.Milliseconds()) + " END",
	}
}
