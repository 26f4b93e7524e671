package dbconn

import (
	"context"
	"crypto/tls"
	"database/sql"
	"net"
	"syscall"
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
		if err != nil || ended == mostEnded || isAlive(ctx, conn) {
			return conn, err
		}
		Destroy(conn, "")
	}
}

// isAlive reports whether an idle connection can be used, as far as that is
// known without a question to the server.
//
// If something has arrived, that is the end of the connection or the server's
// last words. It may also be a notification for another user of the pool, which
// listens on this connection. So the driver reads it, with a ping. A wrapper of
// the driver may have no ping, and then leaves what has arrived unread.
func isAlive(ctx context.Context, conn *sql.Conn) bool {
	socket := SocketOf(conn, nil)
	return !hasArrived(socket) || conn.PingContext(ctx) == nil && !hasArrived(socket)
}

// hasArrived reports whether something has arrived on the socket of an idle
// connection.
//
// It does not take its turn among those who read from the socket: pgx may have a
// goroutine that has been reading since a slow write. Nor does it heed a read
// deadline, which may be one of the last statement.
func hasArrived(socket net.Conn) (arrived bool) {
	if socket == nil {
		return false
	}
	raw := RawConn(socket)
	if raw == nil {
		return false
	}
	err := raw.Control(func(fd uintptr) { arrived = Readable(fd) })
	return arrived || err != nil
}

// RawConn returns the connection of the operating system under socket, or nil
// where it cannot be looked at. Looking does not read.
func RawConn(socket net.Conn) syscall.RawConn {
	if secure, ok := socket.(*tls.Conn); ok {
		socket = secure.NetConn()
	}
	conn, ok := socket.(syscall.Conn)
	if !ok || !canPeek {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
