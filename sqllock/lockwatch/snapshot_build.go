package lockwatch

import (
	"cmp"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// snapshotOf returns i, of PostgreSQL, as a Snapshot, sorted.
func snapshotOf(i *postgres.Inspection) *Snapshot {
	s := &Snapshot{
		Dialect: sqllock.PostgreSQL, At: i.At,
		Heartbeats: stateOf(i.Registry.Heartbeats), Waits: stateOf(i.Registry.Waits),
		Leases: stateOf(i.Registry.Locks).worse(stateOf(i.Registry.Sessions)),
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
		s.Waiters = append(s.Waiters, pollOf(p))
	}
	s.sort()
	return s
}

func holderOf(l postgres.InspectedLock, key sqllock.Key, p Process) Holder {
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

// ofSession reports whether p is named like the connection of a Session.
func (p Process) ofSession() bool { return strings.HasSuffix(p.Application, "latchkey") }

func pollOf(p postgres.InspectedPoll) Waiter {
	poll := &Poll{Session: p.Process, Callers: p.Waiters, Heartbeat: p.Heartbeat, Expires: p.Expires}
	if p.HeldSpace >= 0 {
		held := keyOf(dialect.Space(p.HeldSpace), p.HeldID)
		poll.Held = &held
	}
	return Waiter{Key: keyOf(p.Space, p.ID), Since: p.Since, Poll: poll}
}

func stateOf(t postgres.RegistryTable) TableState {
	switch {
	case t.Name == "":
		return TableMissing
	case t.Untrusted:
		return TableUntrusted
	case !t.Readable:
		return TableUnreadable
	}
	return TableRead
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

// comparePolls compares two rows of one key. Waiters without a Poll are server
// processes, and their PIDs differ already.
func comparePolls(a, b *Poll) int {
	if a == nil || b == nil {
		return 0
	}
	if order := cmp.Or(cmp.Compare(a.Session, b.Session), compareBools(a.Held != nil, b.Held != nil)); order != 0 || a.Held == nil {
		return order
	}
	return compareKeys(*a.Held, *b.Held)
}
