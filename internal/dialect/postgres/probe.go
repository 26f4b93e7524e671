package postgres

import (
	"context"
	"net"
	"time"
)

// encryptionRequest asks whether the server encrypts by GSSAPI: its length and
// its number. The server responds with one byte. It accepts that the client
// then leaves.
var encryptionRequest = []byte{0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30}

// Responds implements dialect.Prober with the first question of PostgreSQL's
// protocol.
func (Dialect) Responds(ctx context.Context, address net.Addr) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, address.Network(), address.String())
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(encryptionRequest); err != nil {
		return false
	}
	n, _ := conn.Read(make([]byte, 1))
	return n == 1
}
