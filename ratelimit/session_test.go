package ratelimit_test

import (
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// session opens a new Session, like that of another instance.
func session(t *testing.T, driver, dsn string) *sqllock.Session {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s, err := sqllock.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Two instances over one PostgreSQL share a limit, and one waits for the other.
func TestAcrossSessions(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			one := ratelimit.AtMost(2, session(t, driver, dsn), "export")
			two := ratelimit.AtMost(2, session(t, driver, dsn), "export")
			patient := ratelimit.AtMost(2, session(t, driver, dsn), "export", ratelimit.WithWait(time.Minute, 1))

			first, second := must(t, one, "ada"), must(t, two, "ada")
			for _, l := range []*ratelimit.Limiter{one, two} {
				if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
					t.Errorf("third: %v, want ErrBusy", err)
				}
			}
			third := make(chan error)
			go func() {
				lock, err := patient.Acquire(t.Context(), "ada")
				_ = lock.Unlock()
				third <- err
			}()
			unlock(t, second)
			if err := <-third; err != nil {
				t.Errorf("waiting: %v, want a lock", err)
			}
			unlock(t, first)
		})
	}
}

// A lock that does not end by Unlock is reported as lost, once.
func TestObserverLost(t *testing.T) {
	t.Parallel()
	s := session(t, pgtest.Drivers()[0], pgtest.Database(t))
	var j journal
	lock := must(t, ratelimit.OneAtATime(s, "export", ratelimit.WithObserver(j.observe)), "ada")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Unlock: %v, want ErrLost", err)
	}
	if got := j.results(); !slices.Equal(got, []ratelimit.Result{ratelimit.Admitted, ratelimit.Lost}) {
		t.Errorf("events %q, want admitted and lost", got)
	}
}

// A request that waits is admitted when its limit is raised to the highest one
// that any id may have. The holders may be in another instance.
func TestLimitRaisedToTheHighest(t *testing.T) {
	t.Parallel()
	driver, dsn := pgtest.Drivers()[0], pgtest.Database(t)
	here, elsewhere := session(t, driver, dsn), session(t, driver, dsn)
	for _, holder := range []*sqllock.Session{here, elsewhere} {
		p := newPlan(3)
		held := fill2(t, ratelimit.AtMost(3, holder, "export"), "ada", 3)
		l := ratelimit.AtMost(5, here, "export", ratelimit.WithLimit(p.limit), ratelimit.WithWait(10*time.Second, 1))
		next := make(chan result, 1)
		go func() {
			lock, err := l.Acquire(t.Context(), "ada")
			next <- result{lock: lock, err: err}
		}()
		for l.Stats().Queued == 0 && len(next) == 0 {
			time.Sleep(time.Millisecond)
		}
		p.n.Store(5)
		got := <-next
		if got.err != nil {
			t.Fatalf("got %v after the limit was raised, want a lock", got.err)
		}
		unlock(t, got.lock)
		for _, lock := range held {
			unlock(t, lock)
		}
	}
}
