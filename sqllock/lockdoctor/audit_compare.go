package lockdoctor

import (
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A discrepancy is one thing in which a Session and the server differ.
type discrepancy struct {
	kind kind
	pid  int64
	key  sqllock.Key // of missing, orphan and secret
}

// A kind of discrepancy.
type kind int

const (
	missing kind = iota // the Session believes to hold a lock that the server does not have
	orphan              // the server has a lock that no caller of the Session holds or waits for
	secret              // a shared lock that may be a secret check: see suspects
	gone                // the server has no such process
	away                // the process is in another database
)

// compare returns how the connections of a Session differ from what the server
// said between two looks at them. A lock counts as held if it was so both
// before and after. It counts as known if it was in any way known before or
// after.
//
// A single look proves nothing under load: a lock may come and go between the
// three moments. So a finding is one that stays: see auditSession.
func compare(before []sqllock.Connection, seen map[int64]serverProcess, after []sqllock.Connection) map[discrepancy]bool {
	found := map[discrepancy]bool{}
	for _, b := range before {
		for _, a := range after {
			if b.PID == a.PID && b.Start.Equal(a.Start) && b.PID != 0 {
				compareOne(b, seen[b.PID], a, found)
			}
		}
	}
	return found
}

func compareOne(before sqllock.Connection, server serverProcess, after sqllock.Connection, found map[discrepancy]bool) {
	pid := before.PID
	switch {
	case server.PID == 0, server.Start != 0 && !before.Start.IsZero() && !time.UnixMicro(server.Start).Equal(before.Start):
		found[discrepancy{kind: gone, pid: pid}] = true
		return
	case !server.Here:
		found[discrepancy{kind: away, pid: pid}] = true
		return
	}
	known := map[sqllock.Key]bool{}
	for _, keys := range [][]sqllock.Key{before.Held, before.Shared, before.Pending, after.Held, after.Shared, after.Pending} {
		for _, k := range keys {
			known[k] = true
		}
	}
	has := map[serverLock]bool{}
	for _, l := range server.Locks {
		has[l] = true
		switch {
		case known[l.key()]:
		case l.Pair && l.Shared: // as a secret check is
			found[discrepancy{secret, pid, l.key()}] = true
		default:
			found[discrepancy{orphan, pid, l.key()}] = true
		}
	}
	for _, k := range both(before.Held, after.Held) {
		if !has[lockOf(k, false)] {
			found[discrepancy{missing, pid, k}] = true
		}
	}
	for _, k := range both(before.Shared, after.Shared) {
		if !has[lockOf(k, true)] {
			found[discrepancy{missing, pid, k}] = true
		}
	}
}

// suspects returns what remains of found without the secret checks that the
// connections account for. Which shared locks are secret checks is not known,
// only how many.
func suspects(found map[discrepancy]bool, connections []sqllock.Connection) map[discrepancy]bool {
	locks := map[int64]int{}
	for d := range found {
		if d.kind == secret {
			locks[d.pid]++
		}
	}
	remain := map[discrepancy]bool{}
	for d := range found {
		remain[d] = true
		for _, c := range connections {
			if d.kind == secret && d.pid == c.PID && locks[d.pid] <= c.SecretChecks {
				delete(remain, d)
			}
		}
	}
	return remain
}

// lockOf returns the lock on k as the server shows it.
func lockOf(k sqllock.Key, shared bool) serverLock {
	_, _, pair := k.Pair()
	return serverLock{pair, k.Int64(), shared}
}

// both returns the keys that are in a and in b.
func both(a, b []sqllock.Key) (keys []sqllock.Key) {
	in := make(map[sqllock.Key]bool, len(a))
	for _, k := range a {
		in[k] = true
	}
	for _, k := range b {
		if in[k] {
			keys = append(keys, k)
		}
	}
	return keys
}
