package dbconn

import (
	"context"
	"database/sql"
	"net"

	"github.com/latchkey-go/latchkey/internal/peek"
)

// mostEnded bounds how many ended connections of a pool Live passes over.
const mostEnded = 64

// Live returns a connection of db, which the caller closes. It passes over
// connections that the server has ended while they were idle in the pool, as
// far as their sockets are known. A statement on one of them would fail, and
// its caller could not tell whether it had its effect.
//
// After a restart of the server all connections of a pool are of this kind.
// idle_session_timeout ends them one by one.
func Live(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	for ended := 0; ; ended++ {
		conn, err := db.Conn(ctx)
		if err != nil || ended == mostEnded || !hasEnded(SocketOf(conn, nil)) {
			return conn, err
		}
		Destroy(conn, "")
	}
}

// hasEnded reports whether something has arrived on the socket of an idle
// connection: normally its end, or the server's last words.
//
// It does not wait for the socket's read lock. pgx holds that on an idle
// connection after a statement that took 15 ms to send: its background reader
// goes on reading until something arrives.
func hasEnded(socket net.Conn) (ended bool) {
	if socket == nil {
		return false
	}
	raw := peek.Raw(socket)
	if raw == nil {
		return false
	}
	err := raw.Control(func(fd uintptr) { ended = peek.Readable(fd) })
	return ended || err != nil
}
