package dialect

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"
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
// is then known only to Held. Statements are numbered, and one that comes after a
// later one does nothing: so Held is the last word on those before it.
type leaseSession struct {
	tables tables
	stamp  stamp
	bound  time.Duration // for a call

	ctx    context.Context // ends with Abort
	abort  context.CancelFunc
	flight *inFlight // the connection of the call under way

	drawn tokens
}

// tables is the words that one kind of database has for a table of leases.
// Each method is a call of Session's: its error is a driver's, or a *Failure.
type tables interface {
	open(ctx context.Context, s *stamp, holder string) error
	exchange(ctx context.Context, s *stamp, b *Batch, drawn *tokens) error
	held(ctx context.Context, s *stamp) ([]Key, error)
	claim(ctx context.Context, s *stamp, wanted, dropped []Claim) (disputed []bool, err error)
	token(ctx context.Context, s *stamp) (first Token, n int64, err error) // and the n-1 after it
	end(ctx context.Context, s *stamp) error
}

// A stamp is what a statement says of its session.
type stamp struct {
	id    int64
	lease time.Duration
	last  int64 // number of the last statement
}

// next numbers the next statement.
func (s *stamp) next() int64 {
	s.last++
	return s.last
}

// openLease makes a session of tables. Its error is that of t.open.
func openLease(ctx context.Context, t tables, set Settings, flight *inFlight) (Session, error) {
	s := &leaseSession{
		tables: t, bound: set.StatementTimeout, flight: flight,
		stamp: stamp{id: rand.Int64(), lease: set.Lease}, //nolint:gosec // a name, not a secret
	}
	if err := t.open(ctx, &s.stamp, holder()); err != nil {
		return nil, err
	}
	s.ctx, s.abort = context.WithCancel(context.Background())
	return s, nil
}

// holder says for people who look into the table which process a session is of.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

func (s *leaseSession) Exchange(b *Batch) error {
	err := s.call(func(ctx context.Context) error { return s.tables.exchange(ctx, &s.stamp, b, &s.drawn) })
	if err != nil {
		s.drawn.reserve(Token{}, 0) // it may have taken locks, and then the block is too old for them
	}
	return err
}

func (s *leaseSession) Held() (keys []Key, err error) {
	err = s.call(func(ctx context.Context) (err error) {
		keys, err = s.tables.held(ctx, &s.stamp)
		return err
	})
	return keys, err
}

func (s *leaseSession) Claim(wanted, dropped []Claim) (disputed []bool, err error) {
	claim := func(wanted, dropped []Claim) error {
		return s.call(func(ctx context.Context) (err error) {
			disputed, err = s.tables.claim(ctx, &s.stamp, wanted, dropped)
			return err
		})
	}
	err = claim(wanted, dropped)
	if err == nil || !survived(err) {
		return disputed, err
	}
	both := append(append([]Claim(nil), dropped...), wanted...)
	if again := claim(nil, both); again != nil {
		return nil, &Failure{Kind: Gone, Reason: "claims could not be given back: " + errors.Join(err, again).Error()}
	}
	return nil, err
}

func (s *leaseSession) Token() (t Token, err error) {
	var n int64
	err = s.call(func(ctx context.Context) (err error) {
		t, n, err = s.tables.token(ctx, &s.stamp)
		return err
	})
	if err == nil { // what is drawn after it is to be greater
		s.drawn.reserve(Token{System: t.System, Epoch: t.Epoch, Number: t.Number + 1}, n-1)
	}
	return t, err
}

func (s *leaseSession) Drawn() (Token, bool) { return s.drawn.next() }

// Socket is nil: no connection is the session's own.
func (s *leaseSession) Socket() net.Conn { return nil }

func (s *leaseSession) Abort() {
	s.abort()
	s.flight.cut()
}

// endPatience bounds how long a session's rows are being deleted: they expire by
// themselves.
const endPatience = time.Second

func (s *leaseSession) Destroy() {
	s.abort()
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	_ = s.tables.end(ctx, &s.stamp)
}

// call bounds f. A connection that failed leaves the session alive.
func (s *leaseSession) call(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.bound)
	defer cancel()
	return lasting(Fail(f(ctx)))
}

// errExpired is how a session ends.
var errExpired = &Failure{Kind: Gone, Reason: "the session had expired by the database's clock, or somebody deleted it"}

// lasting is err as one of a session that goes on, unless the database has said
// that it has ended.
func lasting(err error) error {
	if err == nil || errors.Is(err, errExpired) {
		return err
	}
	var failure *Failure
	if !errors.As(err, &failure) {
		return &Failure{Kind: Statement, Reason: "the database did not answer in time"}
	}
	if failure.Kind == Full {
		return failure
	}
	return &Failure{Kind: Statement, Reason: failure.Reason, State: failure.State, Cause: failure.Cause}
}
