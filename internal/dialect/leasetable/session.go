package leasetable

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// A leaseSession is a Session that is a row of a table, with an expiry by the
// database's own clock, and its locks are rows that point at it. It needs no
// connection of its own: each call borrows one of the pool.
//
// Invariant: a lock's row counts while its session's row is there and has not
// expired. Every statement of a session renews it, or does nothing if it has expired;
// whoever finds it expired may delete it, and it never comes back.
//
// A connection that fails does not end the session: what the statement on it did
// is then known only to Held. Statements are numbered, and the row has the number of the last.
// One that comes after a later one does nothing: so Held is the last word on those before
// it. And where the row's number is less than one that was acknowledged, the database has lost
// what it had committed, in a failover or a restore, and the session has ended.
type leaseSession struct {
	tables tables
	stamp  stamp
	bound  time.Duration // for a call

	doubtful []dialect.SecretCheck // of a call that failed: to be given back

	ctx    context.Context // ends with Abort
	abort  context.CancelFunc
	socket *dbconn.BorrowedSocket // of the call in flight

	reserved reservedTokens
}

// tables is the words that one kind of database has for a table of leases.
// Each method is a call of Session's: its error is a driver's, or a *Failure.
type tables interface {
	open(ctx context.Context, s *stamp, holder string) error
	exchange(ctx context.Context, s *stamp, b *dialect.Batch, reserved *reservedTokens) error
	held(ctx context.Context, s *stamp) ([]dialect.Key, error)
	checkSecrets(ctx context.Context, s *stamp, wanted, dropped []dialect.SecretCheck) (conflicts []bool, err error)
	token(ctx context.Context, s *stamp) (first dialect.Token, n int64, err error) // and the n-1 after it
	end(ctx context.Context, s *stamp) error
}

// A stamp is what a statement says of its session.
type stamp struct {
	id    int64
	lease time.Duration
	last  int64 // number of the last statement
	acked int64 // of the last that was acknowledged
}

// acknowledge notes that the last statement was answered.
func (s *stamp) acknowledge() { s.acked = s.last }

// next numbers the next statement.
func (s *stamp) next() int64 {
	s.last++
	return s.last
}

// openLease makes a session of tables. Its error is that of t.open.
func openLease(ctx context.Context, t tables, set dialect.Settings, socket *dbconn.BorrowedSocket) (dialect.Session, error) {
	s := &leaseSession{
		tables: t, bound: callBound(set), socket: socket,
		stamp: stamp{id: rand.Int64(), lease: set.Lease}, //nolint:gosec // a name, not a secret
	}
	if err := t.open(ctx, &s.stamp, dialect.Holder()); err != nil {
		return nil, err
	}
	s.ctx, s.abort = context.WithCancel(context.Background())
	return s, nil
}

// callBound is for how long a call may go unanswered: so short that Held can follow on it within
// the lease.
func callBound(set dialect.Settings) time.Duration { return set.StatementTimeout / 2 }

func (s *leaseSession) Exchange(b *dialect.Batch) error { return dialect.InParts(b, s.exchange) }

func (s *leaseSession) exchange(b *dialect.Batch) error {
	err := s.call(func(ctx context.Context) error { return s.tables.exchange(ctx, &s.stamp, b, &s.reserved) })
	if err != nil {
		s.reserved.reserve(dialect.Token{}, 0) // it may have taken locks, and then the block is too old for them
	}
	return err
}

// Held also gives back what a check that failed may have left: no statement from before
// is under way any more.
func (s *leaseSession) Held() (keys []dialect.Key, err error) {
	err = s.call(func(ctx context.Context) (err error) {
		if keys, err = s.tables.held(ctx, &s.stamp); err == nil && len(s.doubtful) > 0 {
			_, err = s.tables.checkSecrets(ctx, &s.stamp, nil, s.doubtful)
		}
		return err
	})
	if err == nil {
		s.doubtful = nil
	}
	return keys, err
}

// Claim leaves it to Held, which follows on a failure, to give back what it may have got.
func (s *leaseSession) CheckSecrets(wanted, dropped []dialect.SecretCheck) (conflicts []bool, err error) {
	err = s.call(func(ctx context.Context) (err error) {
		conflicts, err = s.tables.checkSecrets(ctx, &s.stamp, wanted, dropped)
		return err
	})
	if err != nil {
		s.doubtful = append(append(s.doubtful, dropped...), wanted...)
		return nil, err
	}
	return conflicts, nil
}

func (s *leaseSession) Token() (t dialect.Token, err error) {
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

func (s *leaseSession) ReservedToken() (dialect.Token, bool) { return s.reserved.next() }

func (s *leaseSession) Room() int { return math.MaxInt }

// Socket is nil: no connection is the session's own.
func (s *leaseSession) Socket() net.Conn { return nil }

func (s *leaseSession) Abort() {
	s.abort()
	s.socket.Close()
}

// endTimeout bounds how long a session's rows are being deleted: they expire by
// themselves.
const endTimeout = time.Second

// Destroy deletes the session's rows. Abort does not disturb it.
func (s *leaseSession) Destroy() {
	s.abort()
	s.socket.Spare()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = s.tables.end(ctx, &s.stamp)
}

// call bounds f. A connection that failed leaves the session alive.
func (s *leaseSession) call(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.bound)
	defer cancel()
	err := f(ctx)
	if errors.Is(err, errExpired) {
		return errExpired
	}
	return dialect.AsStatement(dialect.Fail(err))
}

// errExpired is how a session ends.
var errExpired = &dialect.Failure{Kind: dialect.Gone, Reason: "the session had expired by the database's clock, or was deleted, or the database has lost what it had committed"}
