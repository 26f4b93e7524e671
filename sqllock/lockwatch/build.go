package lockwatch

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// snapshotOf returns i, of a database of kind d, as a Snapshot, sorted.
func snapshotOf(d sqllock.Dialect, i *dialect.Inspection) *Snapshot {
	s := &Snapshot{
		Dialect: d, At: i.At,
		Heartbeats: TableState(i.Tables.Heartbeats), Waits: TableState(i.Tables.Waits), Leases: TableState(i.Tables.Leases),
	}
	s.addLeases(i.Leases)
	processes := make(map[int]Process, len(i.Processes))
	for _, p := range i.Processes {
		processes[p.PID] = Process(p)
	}
	process := func(pid int) Process {
		p := processes[pid]
		p.PID = pid
		return p
	}
	blockedBy := make(map[int][]int, len(i.Blocked))
	for _, b := range i.Blocked {
		slices.Sort(b.By)
		blockedBy[b.PID] = slices.Compact(b.By)
	}
	for _, l := range i.Locks {
		key := keyOf(l.Space, l.ID)
		if !l.Granted {
			s.Waiters = append(s.Waiters, Waiter{Key: key, Since: l.Since, Process: process(l.PID), Shared: l.Shared, BlockedBy: blockedBy[l.PID]})
			delete(blockedBy, l.PID)
			continue
		}
		if l.Hidden {
			s.Hidden++
		}
		s.Holders = append(s.Holders, holderOf(l, key, process(l.PID)))
	}
	for pid, by := range blockedBy { // processes that wait for no advisory lock
		if len(by) > 0 {
			s.Blocked = append(s.Blocked, Blocked{process(pid), by})
		}
	}
	for _, p := range i.Polls {
		poll := &Poll{Session: p.Process, Holder: p.Holder, Callers: p.Waiters, Heartbeat: p.Heartbeat, Expires: p.Expires}
		if p.HeldSpace >= 0 {
			held := keyOf(dialect.Space(p.HeldSpace), p.HeldID)
			poll.Held = &held
		}
		s.Waiters = append(s.Waiters, Waiter{Key: keyOf(p.Space, p.ID), Since: p.Since, Process: process(p.PID), Poll: poll})
	}
	s.sort()
	return s
}

func holderOf(l dialect.InspectedLock, key sqllock.Key, p Process) Holder {
	h := Holder{Key: key, Process: p, Shared: l.Shared}
	if r := l.Registration; r != nil {
		h.Registration = &Registration{
			Session: r.Process, Namespace: sqllock.Namespace(r.Namespace), Name: r.Name, Holder: r.Holder,
			Acquired: r.Acquired, Heartbeat: r.Heartbeat, Expires: r.Expires,
		}
	}
	h.SecretCheck = l.Shared && l.Space == dialect.TwoInts && h.Registration == nil && p.ofSession()
	return h
}

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

func (s *Snapshot) sort() {
	slices.SortFunc(s.Holders, func(a, b Holder) int {
		return cmp.Or(compareKeys(a.Key, b.Key), cmp.Compare(a.Process.PID, b.Process.PID), cmp.Compare(a.leaseSession(), b.leaseSession()))
	})
	slices.SortFunc(s.Expired, func(a, b Holder) int { return compareKeys(a.Key, b.Key) })
	slices.SortFunc(s.Waiters, func(a, b Waiter) int {
		return cmp.Or(compareKeys(a.Key, b.Key), a.Since.Compare(b.Since), cmp.Compare(a.Process.PID, b.Process.PID), comparePolls(a.Poll, b.Poll))
	})
	slices.SortFunc(s.Blocked, func(a, b Blocked) int { return cmp.Compare(a.Process.PID, b.Process.PID) })
}

// leaseSession returns the session of a lease, and 0 for another lock.
func (h *Holder) leaseSession() int64 {
	if h.Lease == nil {
		return 0
	}
	return h.Lease.Session
}

// comparePolls tells the callers of Sessions apart that wait for one key.
func comparePolls(a, b *Poll) int {
	if a == nil || b == nil {
		return 0
	}
	order := cmp.Or(cmp.Compare(a.Session, b.Session), compareFirst(b.Held != nil, a.Held != nil))
	if order == 0 && a.Held != nil {
		order = compareKeys(*a.Held, *b.Held)
	}
	return order
}
