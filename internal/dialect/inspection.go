package dialect

import (
	"context"
	"database/sql"
	"time"
)

// An Inspector is a Dialect that can read the locks of a database. PostgreSQL's
// own is none: it needs to know where the registry is.
type Inspector interface {
	// Inspect reads the locks of conn's database, and changes nothing. Its error is
	// a *Failure, that of ctx, or one that wraps errors.ErrUnsupported and says what
	// to change.
	Inspect(ctx context.Context, conn *sql.Conn) (*Inspection, error)
}

// An Inspection is the state of the locks of a database at one moment. Package
// postgres reads it as JSON. A kind of database fills in what it has.
type Inspection struct {
	At        time.Time // by the database's clock
	Processes []InspectedProcess
	Locks     []InspectedLock
	Blocked   []InspectedWait
	Polls     []InspectedPoll
	Leases    []LeasedLock // also of sessions that have expired

	Tables TableStates `json:"-"`
}

// TableStates say which tables were read: constants of type lockwatch.TableState,
// and "" for tables that this kind of database does not have.
type TableStates struct{ Heartbeats, Waits, Leases string }

// The states that do not depend on rights.
const (
	TableRead    = "read"
	TableMissing = "missing"
)

// An InspectedProcess is a server process that holds a lock, waits for one, or
// blocks such a process. Fields that this role may not see are zero.
type InspectedProcess struct {
	PID         int
	Start       time.Time // zero also on MySQL
	Application string
	Address     string
	State       string // of MySQL: the command
	StateSince  time.Time
	WaitEvent   string // of MySQL: the state
}

// An InspectedLock is a lock of a key that a process holds or waits for.
type InspectedLock struct {
	PID          int // 0: of a prepared transaction
	Space        Space
	ID           int64
	Shared       bool
	Granted      bool
	Since        time.Time     // of a wait; zero: not known
	Registration *Registration // of this very process, or nil
	Hidden       bool          // there is a registration, but it is unknown whether it is of this process or of an earlier one
}

// A Registration is a row of latchkey_heartbeats.
type Registration struct {
	Process                      int64
	Namespace, Name, Holder      string
	Acquired, Heartbeat, Expires time.Time
}

// An InspectedWait is a process that waits for a lock of any kind, with the
// processes that block it.
type InspectedWait struct {
	PID int
	By  []int
}

// An InspectedPoll is a row of latchkey_waits that has not expired.
type InspectedPoll struct {
	Process          int64
	Space            Space
	ID               int64
	HeldSpace        int // -1: not known
	HeldID           int64
	Waiters          int
	Since, Heartbeat time.Time
	Expires          time.Time
	PID              int    // of one of its Session's server processes; 0: not known
	Holder           string // of its Session
}

// A LeasedLock is a row of latchkey_locks with its session, as it stands in a
// lease table. It is held until Expires.
type LeasedLock struct {
	Space             Space
	ID                int64
	Session           int64  // of latchkey_sessions
	Holder            string // of the session, for people
	Acquired, Expires time.Time
}
