package lockwatch

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Snapshots of other databases than PostgreSQL, and the leases of every kind.

// addLeases adds the locks of a lease table.
func (s *Snapshot) addLeases(locks []dialect.LeasedLock) {
	for _, l := range locks {
		h := Holder{Key: keyOf(l.Space, l.ID), Lease: &Lease{Session: l.Session, Holder: l.Holder, Acquired: l.Acquired, Expires: l.Expires}}
		if l.Expires.After(s.At) {
			s.Holders = append(s.Holders, h)
		} else {
			s.Expired = append(s.Expired, h)
		}
	}
}

// leaseSnapshot returns i, of a database that has leases only, as a Snapshot.
func leaseSnapshot(d sqllock.Dialect, i *leasetable.Inspection) *Snapshot {
	s := &Snapshot{Dialect: d, At: i.At, Leases: TableRead}
	if i.Missing {
		s.Leases = TableMissing
	}
	s.addLeases(i.Locks)
	s.sort()
	return s
}

// leaseSession returns the session of a lease, and 0 for another lock.
func (h *Holder) leaseSession() int64 {
	if h.Lease == nil {
		return 0
	}
	return h.Lease.Session
}

// mysqlSnapshot returns i as a Snapshot. A connection that waits is blocked by the
// holder of its key. The order of several waiters is not known.
func mysqlSnapshot(i *mysql.Inspection) *Snapshot {
	s := &Snapshot{Dialect: sqllock.MySQL, At: i.At}
	holders := make(map[dialect.Key][]int)
	for _, l := range i.Locks {
		if l.Granted {
			holders[l.Key] = append(holders[l.Key], int(l.PID))
		}
	}
	for _, l := range i.Locks {
		key := keyOf(l.Key.Space, l.Key.ID)
		p := Process{PID: int(l.PID), Address: l.Address, State: l.Command, StateSince: l.Since, WaitEvent: l.State}
		if l.Granted {
			s.Holders = append(s.Holders, Holder{Key: key, Process: p})
			continue
		}
		var since time.Time
		if l.State == "User lock" {
			since = l.Since
		}
		s.Waiters = append(s.Waiters, Waiter{Key: key, Since: since, Process: p, BlockedBy: holders[l.Key]})
	}
	s.sort()
	return s
}
