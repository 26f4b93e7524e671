package lockwatch

import (
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Snapshot lists the holders and the waiters of all locks of a database at one
// moment. [Inspect] returns it. The kind of the database decides what it has:
//   - PostgreSQL: the advisory locks of every program, and the rows of a lease
//     table.
//   - SQLite: the rows of a lease table.
//   - MySQL, MariaDB, TiDB: the rows of a lease table, and the locks of GET_LOCK
//     that have a key of package sqllock.
//
// A Snapshot may hold names and hosts: see [WithoutNames]. Show it to
// operators, and keep it out of logs. [NewView] turns it into rows for people.
//
// Invariant: the keys are as the database has them, without a namespace. They
// equal those of [sqllock.ID] and [sqllock.Pair]. Find accepts any key.
type Snapshot struct {
	Dialect sqllock.Dialect // the kind of the database
	At      time.Time       // by the database's clock
	Holders []Holder        // by key, then PID, then session of a lease table
	Waiters []Waiter        // by key, the longest wait first
	Blocked []Blocked       // processes that wait for another kind of lock, by PID; PostgreSQL only

	// Expired are locks of a lease table whose lease has passed. Their holders did
	// not give them back, and have lost them: each is free for the next caller. A
	// Session that needs one of them deletes the rows.
	Expired []Holder

	Heartbeats TableState // of latchkey_heartbeats; not read: no Holder has a Registration
	Waits      TableState // of latchkey_waits; not read: no Waiter has a Poll
	Leases     TableState // of latchkey_locks and latchkey_sessions; not read: no Holder has a Lease

	// Hidden counts locks with a registration that could not be checked. This
	// role may not see when their server processes started. It needs
	// pg_read_all_stats, or pg_monitor.
	Hidden int
}

// A TableState says whether a table was read. It is empty if there is no such
// table in this kind of database.
type TableState string

// The states of a table.
const (
	TableRead       TableState = "read"
	TableMissing    TableState = "missing"    // no table of that name was found
	TableUnreadable TableState = "unreadable" // this role lacks SELECT on it, or USAGE on its schema

	// TableUntrusted: the search_path finds the table, but its owner could make
	// this role run foreign code. The owner is not this role, the owner of the
	// database or a superuser. [WithSchema] trusts the owner.
	TableUntrusted TableState = "untrusted"
)

// A Holder holds one lock. It is a server process, or a session in a lease table
// if Lease is not nil. A holder of several locks appears once for each.
type Holder struct {
	Key     sqllock.Key
	Process Process
	Shared  bool

	// SecretCheck: no caller holds this lock. A Session uses it to find other
	// Sessions that make keys with another secret ([sqllock.Namespace.Keyed]). A
	// shared lock on a Pair counts as one if a Session holds it without a
	// Registration.
	SecretCheck bool

	Registration *Registration // what the holder's own heartbeat has written; nil: nothing
	Lease        *Lease        // the row of a lease table; nil: the server process of Process holds the lock
}

// A Lease is a lock in a lease table, with the session that holds it. Times are by
// the database's clock.
//
// A lock of a lease table and an advisory lock never exclude each other, also if
// their keys are equal. No server process belongs to a lease, so Process of its
// Holder is zero.
type Lease struct {
	Session  int64     // id of the row in latchkey_sessions
	Holder   string    // for people: host and process
	Acquired time.Time // when the row of the lock was written
	Expires  time.Time // when the lock is lost, unless the session renews its row
}

// A Registration is a row of latchkey_heartbeats. Times are by the database's
// clock.
type Registration struct {
	Session   int64             // a random number of the Session
	Namespace sqllock.Namespace // empty for ID and Pair
	Name      string            // of [sqllock.Lock.SetName]; mostly empty
	Holder    string            // for people: host and process
	Acquired  time.Time
	Heartbeat time.Time // the last one
	Expires   time.Time // one lease after Heartbeat
}

// A Process is a server process of the database, which serves one client. Fields
// that this role may not see are zero.
type Process struct {
	PID         int       // of MySQL: the id of the connection; 0: none, the holder is a prepared transaction or a lease
	Start       time.Time // the server uses a PID again, but never with the same Start; of MySQL: zero
	Application string    // application_name; that of a Session ends in "latchkey"; of MySQL: empty
	Address     string    // of the client; empty on a Unix socket
	State       string    // as in pg_stat_activity: "idle", "active", "idle in transaction", …; of MySQL: the command, "Sleep" or "Query"
	StateSince  time.Time // when State began; of an idle process: the end of its last statement
	WaitEvent   string    // what the process waits for, as in pg_stat_activity; "ClientRead" is its client; of MySQL: the state in the process list
}

// A Waiter waits for a lock. It is a server process in pg_advisory_lock or
// GET_LOCK, or callers in a program, which poll. Nothing shows who waits for a
// lock of a lease table, and on MySQL callers of a Session do not appear.
//
// Invariant: Shared and BlockedBy are zero if Poll is not nil. Process is then a
// server process of the callers' Session, or zero if none is known.
type Waiter struct {
	Key       sqllock.Key
	Since     time.Time // of several callers the longest wait; zero: not known
	Process   Process
	Shared    bool
	BlockedBy []int // PIDs of pg_blocking_pids: holders, and waiters ahead in the queue; of MySQL: the holder
	Poll      *Poll // callers of a Session; nil: a server process
}

// A Poll is a row of latchkey_waits: callers that wait for one key. Their Session
// tries the key for them again and again. Or they hold a lock of that Session, and
// wait in LockTx. That is a Waiter with a Process too.
type Poll struct {
	Session   int64  // the random number of the Session that has written the row
	Holder    string // for people: host and process of that Session; empty: not known
	Callers   int
	Held      *sqllock.Key // a lock of a Session that these callers hold while they wait; nil: not known
	Heartbeat time.Time
	Expires   time.Time
}

// A Blocked is a server process that waits for a lock on a row, a table or
// another thing that is no advisory lock.
type Blocked struct {
	Process   Process
	BlockedBy []int // PIDs of pg_blocking_pids
}

// Find returns the holders of key and its waiters. The namespace of key does not
// matter.
func (s *Snapshot) Find(key sqllock.Key) (holders []Holder, waiters []Waiter) {
	id := idOf(key)
	for _, h := range s.Holders {
		if idOf(h.Key) == id {
			holders = append(holders, h)
		}
	}
	for _, w := range s.Waiters {
		if idOf(w.Key) == id {
			waiters = append(waiters, w)
		}
	}
	return holders, waiters
}

// forgetNames removes what [WithoutNames] leaves out.
func (s *Snapshot) forgetNames() {
	for _, holders := range [][]Holder{s.Holders, s.Expired} {
		for i := range holders {
			h := &holders[i]
			h.Process.forgetNames()
			if h.Registration != nil {
				h.Registration.Name, h.Registration.Holder = "", ""
			}
			if h.Lease != nil {
				h.Lease.Holder = ""
			}
		}
	}
	for i := range s.Waiters {
		if w := &s.Waiters[i]; w.Poll != nil {
			w.Poll.Holder = ""
		}
		s.Waiters[i].Process.forgetNames()
	}
	for i := range s.Blocked {
		s.Blocked[i].Process.forgetNames()
	}
}

func (p *Process) forgetNames() {
	if p.Address = ""; p.ofSession() {
		p.Application = "latchkey"
	} else {
		p.Application = ""
	}
}

// ofSession reports whether p is named like the connection of a Session.
func (p *Process) ofSession() bool { return strings.HasSuffix(p.Application, "latchkey") }
