package databases

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The Sessions of every kind of database keep every promise of Locker. Those
// with advisory locks of PostgreSQL have this test in package sqllock, as
// TestSessionConforms.
func TestConformance(t *testing.T)     { conforms(t, lockertest.Run) }
func TestLongConformance(t *testing.T) { conforms(t, lockertest.RunLong) }

func conforms(t *testing.T, run func(*testing.T, lockertest.Fleet)) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) { run(t, fleetOn(t, k, o)) }, moreKinds...)
}

// fleetOn returns a fleet of Sessions that stand for processes of their own.
func fleetOn(t *testing.T, k kind, o lockertest.Orders) lockertest.Fleet {
	t.Helper()
	process(t, o) // makes the tables
	observer := open(t, o.Driver, o.DSN)
	return lockertest.Fleet{
		New:       func(t *testing.T) sqllock.Locker { return process(t, o) },
		InLine:    func(l sqllock.Locker) int { return l.(*sqllock.Session).Stats().Waiting },
		Leftovers: func(t *testing.T) int { return number(t, observer, k.locks) },
	}
}

// A lease table uses a connection only while it runs statements. So a pool of
// one connection serves it, and the caller's transaction with its fence.
func TestPoolOfOne(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		db := open(t, o.Driver, o.DSN)
		db.SetMaxOpenConns(1)
		s := session(t, db, o.Options()...)
		withWork(t, o, db)
		lock := mustLock(t, s, sqllock.ID(1))
		if n := number(t, db, leaseRows); n != 1 {
			t.Errorf("%d rows of locks, want 1", n)
		}
		if !drawsTokens(o) { // there the token needs a second connection
			if err := fencedWork(t, db, lock, 1); err != nil {
				t.Errorf("Fence: %v", err)
			}
		}
		mustUnlock(t, lock)
		if n := number(t, db, leaseRows); n != 0 {
			t.Errorf("%d rows of locks after Unlock, want none", n)
		}
	})
}
