package session

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A server is a database with one session. It answers at once.
type server struct {
	held []dialect.Key
	fail error // the next statement with a key to try fails with it, half-way

	opens  atomic.Int32
	refuse atomic.Pointer[dialect.Failure] // of Open; nil: it succeeds
}

func (s *server) Open(context.Context, *sql.DB, dialect.Settings) (dialect.Session, error) {
	s.opens.Add(1)
	if failure := s.refuse.Load(); failure != nil {
		return nil, failure
	}
	return s, nil
}

func (s *server) Traits() dialect.Traits {
	return dialect.Traits{Name: "test", Lease: dialect.DefaultLease, CloseTimeout: time.Second}
}

func (s *server) Exchange(b *dialect.Batch) error {
	for _, key := range b.Release {
		if i := slices.Index(s.held, key); i >= 0 {
			s.held = slices.Delete(s.held, i, i+1)
		} else {
			b.NotHeld = append(b.NotHeld, key)
		}
	}
	s.held = append(s.held, b.Try...)
	if err := s.fail; err != nil && len(b.Try) > 0 {
		s.fail = nil
		return err
	}
	return nil
}

func (s *server) Held() ([]dialect.Key, error)                 { return slices.Clone(s.held), nil }
func (s *server) Token() (t dialect.Token, err error)          { return t, nil }
func (s *server) ReservedToken() (t dialect.Token, ok bool)    { return t, false }
func (s *server) Room() int                                    { return 100 }
func (s *server) Socket() net.Conn                             { return nil }
func (s *server) Abort()                                       {}
func (s *server) Destroy()                                     { s.held = nil }
func (s *server) Connect(context.Context) (driver.Conn, error) { return nil, driver.ErrBadConn }
func (s *server) Driver() driver.Driver                        { return nil }

type holder struct{ hold keytable.Hold }

func (*holder) EndContexts(keytable.End) {}
func (*holder) CallHooks(keytable.End)   {}
func (*holder) Name() string             { return "" }

// inSession runs f with a Session on a server. f may change the server while no
// call is under way.
func inSession(t *testing.T, f func(t *testing.T, s *Session, of *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		of := new(server)
		db := sql.OpenDB(of)
		defer db.Close()
		o := Defaults()
		o.Dialect, o.NewHold = of, func() *keytable.Hold {
			h := new(holder)
			h.hold.Holder = h
			return &h.hold
		}
		o.Suit()
		s, err := Open(t.Context(), db, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		f(t, s, of)
	})
}

func try(t *testing.T, s *Session, number int64) (*keytable.Hold, error) {
	hold, err := s.Table.Acquire(t.Context(), keytable.Want{}, keytable.ID{Number: number})
	synctest.Wait()
	return hold, err
}

func mustTry(t *testing.T, s *Session, number int64) *keytable.Hold {
	t.Helper()
	hold, err := try(t, s, number)
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

func release(s *Session, hold *keytable.Hold) error {
	hold.End(keytable.Released)
	defer synctest.Wait()
	return s.Table.Release(nil, hold)[0]
}

var rejected = &dialect.Failure{Kind: dialect.Statement, Reason: "the statement was cancelled"}

// The failure of a statement costs no lock. A key that it had taken before it
// failed is granted to the caller who wants it.
func TestStatementFails(t *testing.T) {
	inSession(t, func(t *testing.T, s *Session, of *server) {
		hold := mustTry(t, s, 1)
		of.fail = rejected
		second := mustTry(t, s, 2)
		if hold.Ended() != keytable.NotEnded || s.Stats().Losses != 0 {
			t.Errorf("a lock ended as %v with a statement that failed; %d losses", hold.Ended(), s.Stats().Losses)
		}
		if err := errors.Join(release(s, hold), release(s, second)); err != nil || len(of.held) > 0 {
			t.Errorf("after the releases (%v) the database holds %v", err, of.held)
		}
	})
}

// If a lock is missing after a failed statement, all are lost.
func TestLockIsMissingAfterAFailure(t *testing.T) {
	inSession(t, func(t *testing.T, s *Session, of *server) {
		gone, other := mustTry(t, s, 1), mustTry(t, s, 2)
		of.held, of.fail = of.held[1:], rejected
		_, _ = try(t, s, 3)
		if gone.Ended() != keytable.Lost || other.Ended() != keytable.Lost {
			t.Errorf("a lock that is missing ended as %v, another one as %v; want Lost", gone.Ended(), other.Ended())
		}
	})
}

// If a lock is not there when it is given back, all are lost.
func TestLockIsMissingAtItsRelease(t *testing.T) {
	inSession(t, func(t *testing.T, s *Session, of *server) {
		gone, other := mustTry(t, s, 1), mustTry(t, s, 2)
		of.held = of.held[1:]
		if err := release(s, gone); !errors.Is(err, keytable.ErrLost) {
			t.Errorf("release of a lock that is missing: %v, want ErrLost", err)
		}
		if other.Ended() != keytable.Lost {
			t.Errorf("another lock ended as %v, want Lost", other.Ended())
		}
	})
}

// A response that comes after the lease begins no new one.
func TestLateResponse(t *testing.T) {
	inSession(t, func(t *testing.T, s *Session, _ *server) {
		hold := mustTry(t, s, 1)
		c := s.slots[0].conn
		s.mu.Lock()
		c.deadline.Store(int64(Now())) // as when the process stood still, and no timer has fired yet
		if c.renew(Now()) || int64(Now()) < c.deadline.Load() {
			t.Error("a late response has renewed the lease")
		}
		s.mu.Unlock()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		if hold.Ended() != keytable.Lost {
			t.Errorf("the lock ended as %v, want Lost", hold.Ended())
		}
	})
}

// A Session whose login is rejected tries again soon, and less and less often,
// so that a server that counts such logins has few to count. While the server is
// only away it tries about each second.
func TestAttemptsWhileAway(t *testing.T) {
	for _, tt := range []struct {
		name        string
		failure     *dialect.Failure
		least, most int // attempts within ten minutes
	}{
		{"rejected", &dialect.Failure{Kind: dialect.Gone, Reason: "the password", Permanent: true}, 60, 135},
		{"away", &dialect.Failure{Kind: dialect.Gone, Reason: "starting"}, 600, 1250},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inSession(t, func(t *testing.T, s *Session, of *server) {
				before := int(of.opens.Load())
				of.refuse.Store(tt.failure)
				of.fail = &dialect.Failure{Kind: dialect.Gone, Reason: "the connection was closed"}
				_, _ = try(t, s, 1)
				time.Sleep(time.Second)
				if n := int(of.opens.Load()) - before; n < 4 {
					t.Errorf("%d attempts in the first second, want 4 at least", n)
				}
				time.Sleep(10 * time.Minute)
				if n := int(of.opens.Load()) - before; n < tt.least || n > tt.most {
					t.Errorf("%d attempts in ten minutes, want %d to %d", n, tt.least, tt.most)
				}
				of.refuse.Store(nil)
				time.Sleep(backoffRejected)
				if err := release(s, mustTry(t, s, 1)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
