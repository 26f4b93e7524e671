package leasetable

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// sqliteInspection selects a dialect.Inspection as JSON. Times have milliseconds.
const sqliteInspection = `SELECT json_object('At', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'Leases', json_group_array(json_object(
		'Space', l.key_space, 'ID', l.key_id, 'Session', s.id, 'Holder', s.holder,
		'Acquired', strftime('%Y-%m-%dT%H:%M:%fZ', l.acquired / 1000.0, 'unixepoch'),
		'Expires', strftime('%Y-%m-%dT%H:%M:%fZ', s.expires / 1000.0, 'unixepoch'))))
	FROM main.latchkey_locks AS l JOIN main.latchkey_sessions AS s ON s.id = l.session`

// Inspect implements dialect.Inspector. A transaction that an earlier user of conn
// has left open ends, since its snapshot is old.
func (SQLite) Inspect(ctx context.Context, conn *sql.Conn) (*dialect.Inspection, error) {
	_, _ = conn.ExecContext(ctx, "ROLLBACK") // normally there is none
	var text string
	err := readWhileBusy(ctx, conn, sqliteInspection, &text)
	if errcode.IsNoTable(err) {
		return &dialect.Inspection{At: time.Now(), Tables: dialect.TableStates{Leases: dialect.TableMissing}}, nil // the clock is the machine's
	}
	return inspection(text, err)
}

// readWhileBusy scans the one row of query. It waits for another connection
// that has locked the file, as it does while it commits in a journal that is
// not write-ahead.
func readWhileBusy(ctx context.Context, conn *sql.Conn, query string, dest ...any) error {
	return untilFree(ctx, func() error { return conn.QueryRowContext(ctx, query).Scan(dest...) })
}

// postgresInspection selects a dialect.Inspection as JSON.
const postgresInspection = `SELECT pg_catalog.json_build_object('At', pg_catalog.clock_timestamp(), 'Leases', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
		'Space', l.key_space, 'ID', l.key_id, 'Session', s.id, 'Holder', s.holder, 'Acquired', l.acquired, 'Expires', s.expires))
	FROM latchkey_locks AS l JOIN latchkey_sessions AS s ON s.id = l.session))::text`

// Inspect implements dialect.Inspector for a system that speaks PostgreSQL's SQL
// and is not PostgreSQL. The search_path finds the tables, as for a session. In
// PostgreSQL itself package postgres reads them, together with the advisory locks.
func (PostgreSQL) Inspect(ctx context.Context, conn *sql.Conn) (*dialect.Inspection, error) {
	text, err := postgres.ReadWithoutChange(ctx, conn, postgresInspection)
	if errcode.SQLState(err) == errcode.UndefinedTable {
		return nil, fmt.Errorf("this database has no lease tables: %w", errors.ErrUnsupported)
	}
	return inspection(text, err)
}

// inspection reads what a query has selected. err is that of the query.
func inspection(text string, err error) (*dialect.Inspection, error) {
	i := &dialect.Inspection{Tables: dialect.TableStates{Leases: dialect.TableRead}}
	if err == nil && json.Unmarshal([]byte(text), i) != nil {
		err = errForeignTable
	}
	return i, dialect.Fail(err)
}

// errForeignTable is the failure of tables with these names and other contents.
var errForeignTable = &dialect.Failure{Kind: dialect.Statement, Reason: "latchkey_locks or latchkey_sessions is not a table made by sqllock.Schema"}
