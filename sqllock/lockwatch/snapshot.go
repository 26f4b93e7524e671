package lockwatch

import (
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Snapshot is who holds and who waits for the advisory locks of a PostgreSQL database at one moment, as
// [Inspect] saw it. It may hold names and hosts: it is for people, not for logs.
//
// The keys in it are as the database has them: they equal those of [sqllock.ID] and [sqllock.Pair], and have no
// namespace. Find looks for one of any make.
type Snapshot struct {
	At      time.Time // by the database's clock
	Holders []Holder  // by key, then PID
	Waiters []Waiter  // by key, then who has waited for longest
	Blocked []Blocked // who waits for something else than an advisory lock, by PID

	Heartbeats TableState // whether latchkey_heartbeats was read: without it no Holder has a Registration
	Waits      TableState // whether latchkey_waits was read: without it callers that poll are not seen

	// Hidden counts locks whose registration cannot be trusted, since this role may not see when their server
	// processes started: pg_read_all_stats (or pg_monitor) shows it.
	Hidden int
}

// A TableState says whether a table of the registry could be read.
type TableState string

// The states of a table.
const (
	TableRead       TableState = "read"
	TableMissing    TableState = "missing"    // not there, not in the schema looked at, or no table but a view or the like
	TableUnreadable TableState = "unreadable" // this role lacks SELECT on it, or USAGE on its schema

	// TableUntrusted: the search_path finds it, but it belongs to somebody else than this role, the database's owner or
	// a superuser, who could have this role run his code. Who trusts it names its schema: [WithSchema].
	TableUntrusted TableState = "untrusted"
)

// reason is why the table was not read, in words.
func (t TableState) reason() string {
	if t == TableUntrusted {
		return "untrusted, since its owner is neither this role nor the database's owner nor a superuser: name its schema (WithSchema) if you trust him"
	}
	return string(t)
}

// A Holder is a server process that holds an advisory lock.
type Holder struct {
	Key     sqllock.Key
	Process Process
	Shared  bool

	// SecretCheck: the lock is none of a caller's, but how a Session says which secret it makes keys with
	// ([sqllock.Namespace.Keyed]). A shared lock on a Pair that a Session holds without a
	// Registration passes for one.
	SecretCheck bool

	Registration *Registration // what the process's own heartbeat said of the lock; nil: nothing
}

// A Registration is a row of latchkey_heartbeats. Times are by the database's clock.
type Registration struct {
	Session   int64             // a random number of the Session
	Namespace sqllock.Namespace // empty for ID and Pair
	Name      string            // empty unless the Session is allowed to write it
	Holder    string            // for people: host and process
	Acquired  time.Time
	Heartbeat time.Time // the last
	Expires   time.Time // a lease after it
}

// A Process is a session of the database with one of its clients. What this role may not see is
// zero.
type Process struct {
	PID         int       // 0: none, for a prepared transaction
	Start       time.Time // PIDs come again; with it they are unique
	Application string    // application_name; a Session's ends in "latchkey"
	Address     string    // the client's; empty on a Unix socket
	State       string    // as in pg_stat_activity: "idle", "active", "idle in transaction", …
	StateSince  time.Time // when State began: of an idle process the end of its last statement
	WaitEvent   string    // what the process waits for, as in pg_stat_activity: "ClientRead" is its client
}

// A Waiter waits for an advisory lock: a server process in pg_advisory_lock, or callers of a Session, which polls.
type Waiter struct {
	Key       sqllock.Key
	Since     time.Time // zero: not known; of several callers that of the longest wait
	Process   Process   // zero if Poll is not nil
	Shared    bool      // false if Poll is not nil
	BlockedBy []int     // PIDs of pg_blocking_pids: holders, and who is before it in the queue
	Poll      *Poll     // callers of a Session; nil: a server process
}

// A Poll is callers in one process who wait by asking again and again: a row of latchkey_waits.
type Poll struct {
	Session   int64 // the random number of the Session
	Callers   int
	Holding   bool        // Held is known
	Held      sqllock.Key // a lock that these callers hold meanwhile
	Heartbeat time.Time
	Expires   time.Time
}

// A Blocked is a server process that waits for a lock on a row, a table or another thing.
type Blocked struct {
	Process   Process
	BlockedBy []int // PIDs of pg_blocking_pids
}

// Find is who holds key and who waits for it, whatever namespace it was made in.
func (s *Snapshot) Find(key sqllock.Key) (holders []Holder, waiters []Waiter) {
	for _, h := range s.Holders {
		if idOf(h.Key) == idOf(key) {
			holders = append(holders, h)
		}
	}
	for _, w := range s.Waiters {
		if idOf(w.Key) == idOf(key) {
			waiters = append(waiters, w)
		}
	}
	return holders, waiters
}
