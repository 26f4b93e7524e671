package databases

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A database that fails for a moment during a secret check costs no lock.
func TestLeaseTableSecretCheckInAnOutage(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		var down atomic.Int32 // the number of statements that will fail
		s := session(t, intercepted(t, o, func(_ string, carryOut func() error) error {
			if down.Add(-1) >= 0 {
				return errBroken
			}
			return carryOut()
		}), append(o.Options(), sqllock.WithLease(time.Hour))...)
		lock := mustLock(t, s, sqllock.ID(1))
		down.Store(5)
		secret := sqllock.Namespace("n").Keyed([]byte("secret")).Key("x")
		lockertest.Eventually(t, "the key under a secret is granted", func() bool {
			lock, err := s.TryLock(t.Context(), secret)
			return err == nil && lock.Unlock() == nil
		})
		if down.Load() > 0 {
			t.Error("no statement failed")
		}
		if err := lock.Err(); err != nil {
			t.Errorf("a lock that was held before: %v; %d losses", err, s.Stats().Losses)
		}
	})
}

// Whichever response of a check gets lost, to ask again after Held gives the right result, and
// nothing is left when the session has ended.
func TestLeaseTableSecretCheckWithoutAResponse(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		other := connect(t, o)
		var left atomic.Int32 // the number of statements until a reply gets lost
		db := intercepted(t, o, func(_ string, carryOut func() error) error {
			err := carryOut()
			if left.Add(-1) == 0 {
				return errBroken
			}
			return err
		})
		for class := int32(1); ; class++ {
			s := connectTo(t, db, o.LeaseTable)
			right, wrong := dialect.SecretCheck{Class: class, Fingerprint: 1}, dialect.SecretCheck{Class: class, Fingerprint: 2}
			left.Store(class)
			_, err := s.UseSecret(right)
			if left.Swap(0) > 0 {
				if class == 1 {
					t.Error("no response got lost")
				}
				return
			}
			if err != nil {
				held(t, s)
			}
			for _, step := range []struct {
				s        dialect.Session
				check    dialect.SecretCheck
				conflict bool
			}{{s, right, false}, {other, wrong, true}} {
				if conflict, err := step.s.UseSecret(step.check); err != nil || conflict != step.conflict {
					t.Errorf("check %v, after response %d of the first was lost: conflict %t, %v", step.check, class, conflict, err)
				}
			}
			s.Destroy()
			if conflict, err := other.UseSecret(wrong); err != nil || conflict {
				t.Errorf("another's check, after the session whose response %d was lost has ended: conflict %t, %v", class, conflict, err)
			}
		}
	})
}

// errAmbiguous is the error with which CockroachDB reports that it does not
// know whether it ran a statement.
var errAmbiguous = ambiguous{errors.New("result is ambiguous")}

type ambiguous struct{ error }

func (ambiguous) SQLState() string { return "40003" }

// A statement with an ambiguous result is not repeated. The session finds out
// what happened, and goes on.
func TestLeaseTableAmbiguousResult(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		if !o.LeaseTable {
			t.Skip("SQLite has no SQLSTATEs")
		}
		var armed atomic.Bool
		s := session(t, intercepted(t, o, func(query string, carryOut func() error) error {
			err := carryOut()
			if err == nil && strings.Contains(query, "won AS") && armed.Swap(false) {
				return errAmbiguous
			}
			return err
		}), append(o.Options(), sqllock.WithLease(time.Hour))...)
		locks := []*sqllock.Lock{mustLock(t, s, sqllock.ID(1))}
		armed.Store(true)
		locks = append(locks, mustLock(t, s, sqllock.ID(2))) // this statement was carried out
		if armed.Load() {
			t.Error("no result was ambiguous")
		}
		for _, lock := range locks {
			if err := lock.Unlock(); err != nil {
				t.Errorf("Unlock of %v: %v", lock.Key(), err)
			}
		}
		if n := s.Stats().Losses; n > 0 {
			t.Errorf("%d losses, want none", n)
		}
	})
}
