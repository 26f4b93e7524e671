package leasetable

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A session is a row of a table, with an expiry by the database's clock. Its
// locks are rows that refer to it. It has no connection of its own: each call
// borrows one of the pool.
//
// Invariant: the row of a lock counts while the session's row exists and has
// not expired. Each statement of a session renews the session, or does nothing
// if it has expired. Any session may delete the row of an expired one, which
// never comes back.
//
// A connection that fails does not end the session. Only Held then knows what
// the statement has done. Statements are numbered, and the session's row has
// the number of the last one. A statement that arrives after a later one does
// nothing, so Held has the last word on earlier statements.
//
// If the row has a lower number than a statement that was acknowledged, a
// failover or a restore has lost what was committed. The session has ended
// then.
type session struct {
	tables tables
	stamp  stamp
	bound  time.Duration // of a call
	room   int           // keys that a Batch may carry

	ctx    context.Context // ends with Abort
	abort  context.CancelFunc
	socket *dbconn.BorrowedSocket // of the call in flight

	reserved reservedTokens
}

// tables is the SQL of one kind of database. Each method serves a call of a
// session. Its error is a driver's or a *Failure.
type tables interface {
	open(ctx context.Context, s *stamp, holder string) error
	exchange(ctx context.Context, s *stamp, b *dialect.Batch, reserved *reservedTokens) error
	held(ctx context.Context, s *stamp) ([]dialect.Key, error)
	token(ctx context.Context, s *stamp) (first dialect.Token, n int64, err error) // first and the n-1 tokens after it
	end(ctx context.Context, s *stamp) error
}

// A stamp is what each statement says of its session.
type stamp struct {
	id    int64
	lease time.Duration
	last  int64 // the number of the last statement
	acked int64 // the number of the last one with a response

	countsFrom int64 // of MySQL: the number of the last Held with a response
}

// acknowledge notes that the last statement has its response.
func (s *stamp) acknowledge() { s.acked = s.last }

// next returns the number of the next statement.
func (s *stamp) next() int64 {
	s.last++
	return s.last
}

// openSession makes a session with t. Its error is that of t.open.
func openSession(ctx context.Context, t tables, set dialect.Settings, socket *dbconn.BorrowedSocket) (*session, error) {
	s := &session{
		tables: t, bound: callBound(set), room: math.MaxInt, socket: socket,
		stamp: stamp{id: rand.Int64(), lease: set.Lease}, //nolint:gosec // a name, not a secret
	}
	if err := t.open(ctx, &s.stamp, dialect.Holder()); err != nil {
		return nil, err
	}
	s.ctx, s.abort = context.WithCancel(context.Background())
	return s, nil
}

// callBound bounds a call. It is so short that Held can follow within the
// lease.
func callBound(set dialect.Settings) time.Duration { return set.StatementTimeout / 2 }

// Exchange implements dialect.Session.
func (s *session) Exchange(b *dialect.Batch) error {
	return dialect.InParts(b, s.exchange)
}

// exchange carries out a batch without stacks.
func (s *session) exchange(b *dialect.Batch) error {
	err := s.call(func(ctx context.Context) error { return s.tables.exchange(ctx, &s.stamp, b, &s.reserved) })
	if err != nil {
		s.reserved.reserve(dialect.Token{}, 0) // the failed statement may have taken locks that are newer than the block
	}
	return err
}

// Held implements dialect.Session. No earlier statement is in flight after it.
func (s *session) Held() (keys []dialect.Key, err error) {
	err = s.call(func(ctx context.Context) (err error) {
		keys, err = s.tables.held(ctx, &s.stamp)
		return err
	})
	return keys, err
}

// Token implements dialect.Session.
func (s *session) Token() (t dialect.Token, err error) {
	var n int64
	err = s.call(func(ctx context.Context) (err error) {
		t, n, err = s.tables.token(ctx, &s.stamp)
		return err
	})
	if err == nil { // what is reserved after it is to be greater
		next := t
		next.Number++
		s.reserved.reserve(next, n-1)
	}
	return t, err
}

// ReservedToken implements dialect.Session.
func (s *session) ReservedToken() (dialect.Token, bool) { return s.reserved.next() }

// Room implements dialect.Session.
func (s *session) Room() int { return s.room }

// Socket returns nil, since no connection belongs to the session.
func (s *session) Socket() net.Conn { return nil }

// Abort implements dialect.Session.
func (s *session) Abort() {
	s.abort()
	s.socket.Close()
}

// endTimeout bounds the deletion of a session's rows. They expire in any case.
const endTimeout = time.Second

// Destroy deletes the session's rows. Abort does not disturb it.
func (s *session) Destroy() {
	s.abort()
	s.socket.Spare()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = s.tables.end(ctx, &s.stamp)
}

// call bounds f. The session survives the failure of a connection.
func (s *session) call(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.bound)
	defer cancel()
	err := f(ctx)
	if errors.Is(err, errExpired) {
		return errExpired
	}
	if errcode.SQLState(err) == errcode.Forbidden {
		err = errRights
	}
	return dialect.AsStatement(dialect.Fail(err))
}

// errExpired is the end of a session.
var errExpired = &dialect.Failure{Kind: dialect.Gone, Reason: "the session had expired by the database's clock, or was deleted, or the database has lost what it had committed"}

// reservedTokens is a block of tokens that an exchange has reserved. The zero
// value is empty.
//
// Invariant: while the session holds a lock, the block was reserved in the
// transaction that took the lock, or in a later one. So its tokens are greater
// than those of earlier holders and less than those of later ones.
type reservedTokens struct {
	mu    sync.Mutex // protects the fields below
	first dialect.Token
	used  int64
	size  int64
}

// reserve replaces the block by size tokens from first on.
func (t *reservedTokens) reserve(first dialect.Token, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.used, t.size = first, 0, size
}

// next returns the next token of the block, if there is one.
func (t *reservedTokens) next() (dialect.Token, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.used == t.size {
		return dialect.Token{}, false
	}
	token := t.first
	token.Number += t.used
	t.used++
	return token, true
}
