package dbconn

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A Taken connection is one that Prove has taken from a pool.
//
// Its socket is looked up before the first statement. Later, a driver that is
// stuck does not show it.
type Taken struct {
	*sql.Conn
	Socket net.Conn // nil if it cannot be reached
	last   string   // see Destroy
}

// A Pair is the connection of a session to be, and a witness for the proof that
// locks on it exclude others.
type Pair struct {
	Session, Witness *sql.Conn
	Timeout          time.Duration // for each question
}

// Prove takes two connections of db and calls prove with them. Then it gives the
// witness back, and returns the connection of the session. After an error a
// question may be unanswered, so Prove discards both. last is as in Destroy. The
// error is a *Failure or that of ctx.
func Prove(ctx context.Context, db *sql.DB, set dialect.Settings, last string, prove func(Pair) error) (*Taken, error) {
	if db.Stats().MaxOpenConnections == 1 {
		return nil, dialect.Misconfigured("the pool may open one connection only (SetMaxOpenConns), and the proof that locks exclude needs two: allow two or more")
	}
	session, err := take(ctx, db, set.Socket, last)
	if err != nil {
		return nil, dialect.Fail(err)
	}
	witness, err := take(ctx, db, set.Socket, last)
	if err == nil {
		if err = prove(Pair{session.Conn, witness.Conn, set.Proof}); err != nil {
			witness.Discard()
		} else {
			err = witness.Close() // gives it back
		}
	}
	if err != nil {
		session.Discard()
		return nil, dialect.Fail(err)
	}
	return session, nil
}

func take(ctx context.Context, db *sql.DB, find func(any) net.Conn, last string) (*Taken, error) {
	conn, err := Live(ctx, db)
	if err != nil {
		return nil, loginFailure(err)
	}
	return &Taken{Conn: conn, Socket: SocketOf(conn, find), last: last}, nil
}

// SetUp calls f, which sends statements on c, for at most timeout. After an error
// it discards c. The error is a *Failure or that of ctx.
func (c *Taken) SetUp(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	err := Do(ctx, timeout, f)
	if err != nil {
		c.Discard()
	}
	return dialect.Fail(err)
}

// Discard destroys c and waits for at most 100 ms. If a statement is still in
// flight then, it closes the socket.
func (c *Taken) Discard() {
	if !InTime(discardTimeout, func() { Destroy(c.Conn, c.last) }) && c.Socket != nil {
		_ = c.Socket.Close()
	}
}

// Rounds is how often Apart looks if something may be between. Eight rounds found
// 900 poolers of 900. One round missed up to 12 of 100.
const Rounds = 8

// Apart checks in a number of rounds that each connection keeps one of the
// server's own. isOwn reports whether the server serves conn by its own one.
// between is the reason to reject what shares them, and rollback the statement
// that ends a transaction.
//
// In each round the witness opens a transaction, which occupies one of the
// server's connections. Where they are shared, that may be the one that the
// session was on. If there is only one, the session gets no response. So silence
// means that something is between.
//
// The session asks before each round. What hands out the connection that was used
// last gives that of the session to the witness then. Otherwise both could keep
// theirs by chance in all rounds.
func (p Pair) Apart(ctx context.Context, rounds int, between, rollback string, isOwn func(context.Context, *sql.Conn) (bool, error)) error {
	for range rounds {
		own, err := isOwn(ctx, p.Session)
		if err == nil && !own {
			err = dialect.Refuse(between)
		}
		if err == nil {
			err = p.Exec(ctx, p.Witness, "START TRANSACTION")
		}
		if err == nil {
			err = p.stayApart(ctx, between, isOwn)
			if rollbackErr := p.Exec(ctx, p.Witness, rollback); err == nil {
				err = rollbackErr
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stayApart is Apart while the witness is in a transaction.
func (p Pair) stayApart(ctx context.Context, between string, isOwn func(context.Context, *sql.Conn) (bool, error)) error {
	apart, err := isOwn(ctx, p.Witness)
	if err != nil {
		return err
	}
	kept, err := isOwn(ctx, p.Session)
	if errors.Is(err, ErrSilence) {
		return dialect.Refuse("no answer within " + p.Timeout.String() + " while another connection was in a transaction: " + between)
	}
	if err == nil && !(apart && kept) {
		err = dialect.Refuse(between)
	}
	return err
}

// Exec sends a statement without arguments, within the Timeout.
func (p Pair) Exec(ctx context.Context, conn *sql.Conn, statement string) error {
	return Do(ctx, p.Timeout, func(ctx context.Context) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	})
}
