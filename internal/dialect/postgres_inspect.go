package dialect

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// An Inspection is what PostgreSQL says of a database's advisory locks at one moment.
type Inspection struct {
	At        time.Time // by the database's clock
	Processes []InspectedProcess
	Locks     []InspectedLock
	Blocked   []InspectedWait
	Polls     []InspectedPoll
	Registry  Registry `json:"-"`
}

// An InspectedProcess is a server process that has to do with a lock.
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
	Space        Space
	ID           int64
	Shared       bool
	Granted      bool
	Since        time.Time     // of a wait; zero: not known
	Registration *Registration // of this very process, or nil
	Hidden       bool          // there is a registration, and the process's start, which is hidden, would tell whether it is of this one
}

// A Registration is a row of latchkey_heartbeats.
type Registration struct {
	Process                      int64
	Namespace, Name, Holder      string
	Acquired, Heartbeat, Expires time.Time
}

// An InspectedWait is a process that waits for a lock of whatever kind, and for whom.
type InspectedWait struct {
	PID int
	By  []int
}

// An InspectedPoll is a row of latchkey_waits that has not expired.
type InspectedPoll struct {
	Process          int64
	Space            Space
	ID               int64
	HeldSpace        int // -1: nothing is known
	HeldID           int64
	Waiters          int
	Since, Heartbeat time.Time
	Expires          time.Time
}

// A Registry is where the tables of heartbeats and of waits are.
type Registry struct {
	Heartbeats, Waits RegistryTable

	UTF8 bool // the database's encoding, for who writes
}

// A RegistryTable is one of the two.
type RegistryTable struct {
	Name      string // with its schema, quoted; empty: it is not there
	Untrusted bool   // found by the search_path, and its owner is nobody whose code this role should run
	Readable  bool   // by this role, and not Untrusted
}

// Inspect reads the locks of db's database, with the registry in schema, or, if that is
// empty, where the search_path finds it. It does nothing but read, which the server sees to. Its error
// is a *Failure, ctx's, or one that wraps errors.ErrUnsupported.
func Inspect(ctx context.Context, db *sql.DB, schema string) (*Inspection, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, Fail(err)
	}
	defer conn.Close()
	if err := mustBePostgreSQL(ctx, conn); err != nil {
		return nil, err
	}
	if err := tidy(ctx, conn); err != nil {
		return nil, Fail(err)
	}
	registry, err := findRegistry(ctx, conn, schema)
	if err != nil {
		return nil, err
	}
	return registry.inspect(ctx, conn)
}

func mustBePostgreSQL(ctx context.Context, conn *sql.Conn) error {
	d, err := choose(ctx, conn, false)
	var failure *Failure
	switch {
	case errors.As(err, &failure) && failure.Kind == NotExclusive:
		return errNotPostgreSQL
	case err != nil:
		return Fail(err)
	}
	if _, ok := d.(PostgreSQL); !ok {
		return errNotPostgreSQL
	}
	return nil
}

var errNotPostgreSQL = fmt.Errorf("this database has no advisory locks of PostgreSQL to inspect: %w", errors.ErrUnsupported)

// findRegistry looks whether this is a server to ask, and for the registry's tables.
func findRegistry(ctx context.Context, conn *sql.Conn, schema string) (r Registry, err error) {
	var (
		standby bool
		version int
		text    string
	)
	query := fmt.Sprintf(registryQuery, quoted(schema), quoted(schema), quoted(schema))
	if err := conn.QueryRowContext(ctx, query).Scan(&standby, &version, &text); err != nil {
		return r, Fail(err)
	}
	switch {
	case standby:
		return r, refuse("this is a standby, whose advisory locks are its own: ask the primary (target_session_attrs=read-write)")
	case version < 140000:
		return r, fmt.Errorf("the server is older than PostgreSQL 14: %w", errors.ErrUnsupported)
	}
	tables := map[string]RegistryTable{}
	if err := json.Unmarshal([]byte(text), &tables); err != nil {
		return r, errNonsense
	}
	return Registry{Heartbeats: tables["latchkey_heartbeats"], Waits: tables["latchkey_waits"]}, nil
}

func (r Registry) inspect(ctx context.Context, conn *sql.Conn) (*Inspection, error) {
	text, err := readWithoutChange(ctx, conn, r.inspectQuery())
	switch state := SQLState(err); {
	case state == undefinedTable, state == undefinedColumn, state == undefinedFunction:
		return nil, foreignTable(state)
	case err != nil:
		return nil, Fail(err)
	}
	i := &Inspection{Registry: r}
	if err := json.Unmarshal([]byte(text), i); err != nil {
		return nil, foreignTable("")
	}
	return i, nil
}

// readWithoutChange is the text that query answers. What it calls, however it came to, can change nothing.
func readWithoutChange(ctx context.Context, conn *sql.Conn, query string) (text string, err error) {
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

func foreignTable(state string) error {
	return &Failure{Kind: Statement, State: state,
		Reason: "latchkey_heartbeats or latchkey_waits is not a table made by lockwatch.Schema: name the schema of those that are (lockwatch.WithSchema)"}
}

const (
	undefinedTable  = "42P01"
	undefinedColumn = "42703"
)
