// Package peek looks at a socket without reading from it.
package peek

import (
	"crypto/tls"
	"net"
	"syscall"
)

// Raw returns the connection of the operating system under socket, or nil where
// it cannot be looked at.
func Raw(socket net.Conn) syscall.RawConn {
	if secure, ok := socket.(*tls.Conn); ok {
		socket = secure.NetConn()
	}
	conn, ok := socket.(syscall.Conn)
	if !ok || !Possible {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
