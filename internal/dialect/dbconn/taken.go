package dbconn

import (
	"context"
	"database/sql"
	"net"
	"time"
)

// A taken connection is one of a pool's that Open has taken, to keep it or to
// look at it.
//
// Its socket is looked for before the first statement: later a driver that is
// stuck does not let it be found.
type Taken struct {
	*sql.Conn
	Socket net.Conn // nil where it cannot be reached
	last   string   // see destroy
}

// take takes a connection of db.
func Take(ctx context.Context, db *sql.DB, find func(any) net.Conn, last string) (*Taken, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &Taken{Conn: conn, Socket: SocketOf(conn, find), last: last}, nil
}

// discard destroys c, and does not wait long: under a statement that stays in
// flight it closes the socket.
func (c *Taken) Discard() {
	destroyed := make(chan struct{})
	go func() {
		Destroy(c.Conn, c.last)
		close(destroyed)
	}()
	timer := time.NewTimer(discardTimeout)
	defer timer.Stop()
	select {
	case <-destroyed:
	case <-timer.C:
		if c.Socket != nil {
			_ = c.Socket.Close()
		}
	}
}
