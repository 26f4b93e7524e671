package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// An Inspection is the state of the locks of a database at one moment.
type Inspection struct {
	At        time.Time // by the database's clock
	Processes []InspectedProcess
	Locks     []InspectedLock
	Blocked   []InspectedWait
	Polls     []InspectedPoll
	Waiting   []InspectedSession
	Leases    []LeasedLock // also of sessions that have expired
	Registry  Registry     `json:"-"`
}

// An InspectedProcess is a server process that holds a lock, waits for one, or
// blocks such a process.
type InspectedProcess struct {
	PID         int
	Start       time.Time // zero: hidden from this role, as Address and State are
	Application string
	Address     string
	State       string
	StateSince  time.Time
	WaitEvent   string
}

// An InspectedLock is an advisory lock that a process holds or waits for.
type InspectedLock struct {
	PID          int // 0: of a prepared transaction
	Space        dialect.Space
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
	Space            dialect.Space
	ID               int64
	HeldSpace        int // -1: not known
	HeldID           int64
	Waiters          int
	Since, Heartbeat time.Time
	Expires          time.Time
}

// An InspectedSession is a Session with an InspectedPoll.
type InspectedSession struct {
	Process int64
	PID     int // of one of its server processes
	Holder  string
}

// A LeasedLock is a row of latchkey_locks with its session, as it stands in a
// lease table. It is held until Expires.
type LeasedLock struct {
	Space             dialect.Space
	ID                int64
	Session           int64  // of latchkey_sessions
	Holder            string // of the session, for people
	Acquired, Expires time.Time
}

// A Registry says where the tables of heartbeats and of waits are, and for
// Inspect also the lease tables.
type Registry struct {
	Heartbeats, Waits RegistryTable
	Sessions, Locks   RegistryTable // of leases

	UTF8 bool // the database's encoding is UTF8
}

// A RegistryTable is one of these tables.
type RegistryTable struct {
	Name      string // with its schema, quoted; empty: it is not there
	Untrusted bool   // found by the search_path, and this role should not run code of its owner
	Readable  bool   // this role may read the table, which is not Untrusted
}

// Inspect reads the advisory locks of conn's database, the registry and the
// lease tables. conn is known to be PostgreSQL's own. The search_path finds the
// tables that are not in schema. Those of the registry are only looked for there,
// unless schema is empty.
//
// The server lets it do nothing but read. Its error is a *Failure, that of ctx,
// or one that wraps errors.ErrUnsupported.
func Inspect(ctx context.Context, conn *sql.Conn, schema string) (*Inspection, error) {
	if err := Tidy(ctx, conn); err != nil {
		return nil, dialect.Fail(err)
	}
	registry, err := findRegistry(ctx, conn, schema)
	if err != nil {
		return nil, err
	}
	return registry.InspectAgain(ctx, conn)
}

// findRegistry finds the registry's tables. It fails on a standby and on an old
// server.
func findRegistry(ctx context.Context, conn *sql.Conn, schema string) (r Registry, err error) {
	var (
		standby bool
		version int
		text    string
	)
	query := strings.ReplaceAll(registryQuery, "SCHEMA", dialect.Quoted(schema))
	if err := conn.QueryRowContext(ctx, query).Scan(&standby, &version, &text); err != nil {
		return r, dialect.Fail(err)
	}
	switch {
	case standby:
		return r, errStandby
	case version < 140000:
		return r, fmt.Errorf("the server is older than PostgreSQL 14: %w", errors.ErrUnsupported)
	}
	tables := map[string]RegistryTable{}
	if err := json.Unmarshal([]byte(text), &tables); err != nil {
		return r, dialect.ErrNonsense
	}
	return Registry{
		Heartbeats: tables["latchkey_heartbeats"], Waits: tables["latchkey_waits"],
		Sessions: tables["latchkey_sessions"], Locks: tables["latchkey_locks"],
	}, nil
}

var errStandby = dialect.Refuse("this is a standby, whose advisory locks are its own: ask the primary (target_session_attrs=read-write)")

// InspectAgain is Inspect for a database in which an earlier Inspection has found
// the tables of r. It needs one query. It fails if the server is a standby now.
//
// After a failure of kind Statement the tables may have changed: use Inspect.
func (r Registry) InspectAgain(ctx context.Context, conn *sql.Conn) (*Inspection, error) {
	text, err := ReadWithoutChange(ctx, conn, "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE ("+r.inspectQuery()+") END")
	switch state := errcode.SQLState(err); {
	case state == errcode.UndefinedTable, state == errcode.UndefinedColumn, state == errcode.UndefinedFunction:
		return nil, foreignTable(state)
	case err != nil:
		return nil, dialect.Fail(err)
	case text == "":
		return nil, errStandby
	}
	i := &Inspection{Registry: r}
	if err := json.Unmarshal([]byte(text), i); err != nil {
		return nil, foreignTable("")
	}
	return i, nil
}

// ReadWithoutChange returns the text that query selects. In its transaction no
// function that the query calls can change anything. The error is the driver's.
func ReadWithoutChange(ctx context.Context, conn *sql.Conn, query string) (text string, err error) {
	if err := Tidy(ctx, conn); err != nil {
		return "", err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.QueryRowContext(ctx, query).Scan(&text); err != nil {
		return "", err
	}
	return text, tx.Commit()
}

// foreignTable returns the failure for tables of these names with other
// columns.
func foreignTable(state string) error {
	return &dialect.Failure{Kind: dialect.Statement, State: state,
		Reason: "latchkey_heartbeats or latchkey_waits is not a table made by lockwatch.Schema, or latchkey_locks or latchkey_sessions none made by sqllock.Schema: name the schema of those that are (lockwatch.WithSchema)"}
}
