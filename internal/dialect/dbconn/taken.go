package dbconn

import (
	"context"
	"database/sql"
	"net"
)

// A Taken connection is one that Open has taken from a pool, to keep it or to
// test it.
//
// Its socket is looked up before the first statement. Later, a driver that is
// stuck does not show it.
type Taken struct {
	*sql.Conn
	Socket net.Conn // nil if it cannot be reached
	last   string   // see Destroy
}

// Take takes a connection of db. last is as in Destroy.
func Take(ctx context.Context, db *sql.DB, find func(any) net.Conn, last string) (*Taken, error) {
	conn, err := Live(ctx, db)
	if err != nil {
		return nil, loginFailure(err)
	}
	return &Taken{Conn: conn, Socket: SocketOf(conn, find), last: last}, nil
}

// Discard destroys c and waits for at most 100 ms. If a statement is still in
// flight then, it closes the socket.
func (c *Taken) Discard() {
	if !InTime(discardTimeout, func() { Destroy(c.Conn, c.last) }) && c.Socket != nil {
		_ = c.Socket.Close()
	}
}
