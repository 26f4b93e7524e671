package dbconn

import (
	"context"
	"database/sql"
	"net"

	"github.com/latchkey-go/latchkey/internal/dialect"
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

// TakeTwo takes the connection of a session, and a witness for the proof that
// locks exclude. last is as in Destroy.
func TakeTwo(ctx context.Context, db *sql.DB, find func(any) net.Conn, last string) (session, witness *Taken, err error) {
	if db.Stats().MaxOpenConnections == 1 {
		return nil, nil, dialect.Misconfigured("the pool may open one connection only (SetMaxOpenConns), and the proof that locks exclude needs two: allow two or more")
	}
	if session, err = take(ctx, db, find, last); err != nil {
		return nil, nil, err
	}
	if witness, err = take(ctx, db, find, last); err != nil {
		session.Discard()
		return nil, nil, err
	}
	return session, witness, nil
}

func take(ctx context.Context, db *sql.DB, find func(any) net.Conn, last string) (*Taken, error) {
	conn, err := Live(ctx, db)
	if err != nil {
		return nil, loginFailure(err)
	}
	return &Taken{Conn: conn, Socket: SocketOf(conn, find), last: last}, nil
}

// GiveBack gives c back to the pool. After err a question may be unanswered, so it
// discards c then. It returns err, or why c could not be given back.
func (c *Taken) GiveBack(err error) error {
	if err == nil {
		return c.Close()
	}
	c.Discard()
	return err
}

// Discard destroys c and waits for at most 100 ms. If a statement is still in
// flight then, it closes the socket.
func (c *Taken) Discard() {
	if !InTime(discardTimeout, func() { Destroy(c.Conn, c.last) }) && c.Socket != nil {
		_ = c.Socket.Close()
	}
}
