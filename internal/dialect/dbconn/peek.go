package dbconn

import (
	"crypto/tls"
	"net"
	"syscall"
)

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
