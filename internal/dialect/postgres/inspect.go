package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A Registry says where the tables of heartbeats and of waits are, and the lease
// tables.
type Registry struct {
	Heartbeats, Waits RegistryTable
	Sessions, Locks   RegistryTable // of leases

	UTF8 bool // the database's encoding is UTF8
}

// A RegistryTable is one of these tables.
type RegistryTable struct {
	Name string // with its schema, quoted; empty: it is not there

	// State is a constant of type lockwatch.TableState. An untrusted table was found
	// by the search_path, and this role should not run code of its owner.
	State string
}

const untrusted = "untrusted"

// Readable reports whether this role may read the table, and trusts its owner.
func (t RegistryTable) Readable() bool { return t.State == dialect.TableRead }

// FindTables finds the registry's tables and the lease tables of conn's database,
// which is known to be PostgreSQL's own. The search_path finds the tables that are
// not in schema. Those of the registry are only looked for there, unless schema is
// empty.
//
// It fails on a standby and on an old server. Its error is a *Failure, that of ctx,
// or one that wraps errors.ErrUnsupported.
func FindTables(ctx context.Context, conn *sql.Conn, schema string) (r Registry, err error) {
	if err := Tidy(ctx, conn); err != nil {
		return r, dialect.Fail(err)
	}
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
	missing := RegistryTable{State: dialect.TableMissing}
	tables := map[string]RegistryTable{"latchkey_heartbeats": missing, "latchkey_waits": missing, "latchkey_sessions": missing, "latchkey_locks": missing}
	if err := json.Unmarshal([]byte(text), &tables); err != nil {
		return r, dialect.ErrNonsense
	}
	return Registry{
		Heartbeats: tables["latchkey_heartbeats"], Waits: tables["latchkey_waits"],
		Sessions: tables["latchkey_sessions"], Locks: tables["latchkey_locks"],
	}, nil
}

var errStandby = dialect.Refuse("this is a standby, whose advisory locks are its own: ask the primary (target_session_attrs=read-write)")

// Inspect reads the advisory locks of conn's database and the tables of r, in one
// query. The server lets it do nothing but read. It fails if the server is a
// standby. Its error is a *Failure or that of ctx.
//
// After a failure of kind Statement the tables may have changed: use FindTables.
func (r Registry) Inspect(ctx context.Context, conn *sql.Conn) (*dialect.Inspection, error) {
	text, err := ReadWithoutChange(ctx, conn, "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE ("+r.inspectQuery()+") END")
	switch state := errcode.SQLState(err); {
	case state == errcode.UndefinedTable, state == errcode.UndefinedColumn, state == errcode.UndefinedFunction:
		return nil, foreignTable(state)
	case err != nil:
		return nil, dialect.Fail(err)
	case text == "":
		return nil, errStandby
	}
	leases := r.Sessions
	if leases.Readable() { // they are only of use together
		leases = r.Locks
	}
	i := &dialect.Inspection{Tables: dialect.TableStates{Heartbeats: r.Heartbeats.State, Waits: r.Waits.State, Leases: leases.State}}
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
