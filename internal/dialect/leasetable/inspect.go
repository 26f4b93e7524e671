package leasetable

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// An Inspection is the state of the lease tables at one moment. In PostgreSQL
// itself package postgres reads them, together with the advisory locks.
type Inspection struct {
	At      time.Time            // by the database's clock
	Missing bool                 // there are no lease tables
	Locks   []dialect.LeasedLock // also of sessions that have expired
}

// InspectSQLite reads the lease tables of the file of conn, and changes
// nothing. A transaction that an earlier user of conn has left open ends, since
// its snapshot is old. The error is a *Failure or that of ctx.
func InspectSQLite(ctx context.Context, conn *sql.Conn) (*Inspection, error) {
	_, _ = conn.ExecContext(ctx, "ROLLBACK") // normally there is none
	var (
		now    int64
		tables int
		text   sql.NullString
	)
	err := readWhileBusy(ctx, conn, `SELECT `+sqliteMillis+`, count(*) FROM main.sqlite_master
		WHERE type = 'table' AND name IN ('latchkey_locks', 'latchkey_sessions')`, &now, &tables)
	if err != nil || tables < 2 {
		return &Inspection{At: time.UnixMilli(now), Missing: true}, dialect.Fail(err)
	}
	err = readWhileBusy(ctx, conn, `SELECT `+sqliteMillis+`, json_group_array(json_array(l.key_space, l.key_id, s.id, s.holder, l.acquired, s.expires))
		FROM main.latchkey_locks AS l JOIN main.latchkey_sessions AS s ON s.id = l.session`, &now, &text)
	if err != nil {
		return nil, dialect.Fail(err)
	}
	var rows []sqliteRow
	if err := json.Unmarshal([]byte(text.String), &rows); err != nil {
		return nil, errForeignTable
	}
	i := &Inspection{At: time.UnixMilli(now)}
	for _, r := range rows {
		i.Locks = append(i.Locks, dialect.LeasedLock(r))
	}
	return i, nil
}

// readWhileBusy scans the one row of query. It waits for another connection
// that has locked the file, as it does while it commits in a journal that is
// not write-ahead.
func readWhileBusy(ctx context.Context, conn *sql.Conn, query string, dest ...any) error {
	return untilFree(ctx, func() error { return conn.QueryRowContext(ctx, query).Scan(dest...) })
}

// A sqliteRow is a lock as SQLite returns it: a list.
type sqliteRow dialect.LeasedLock

// UnmarshalJSON reads the list. Times are milliseconds since 1970.
func (r *sqliteRow) UnmarshalJSON(text []byte) error {
	var acquired, expires int64
	err := json.Unmarshal(text, &[]any{&r.Space, &r.ID, &r.Session, &r.Holder, &acquired, &expires})
	r.Acquired, r.Expires = time.UnixMilli(acquired), time.UnixMilli(expires)
	return err
}

// errForeignTable is the failure of tables with these names and other contents.
var errForeignTable = &dialect.Failure{Kind: dialect.Statement, Reason: "latchkey_locks or latchkey_sessions is not a table made by sqllock.Schema"}

// InspectPostgreSQL reads the lease tables in a system that speaks PostgreSQL's
// SQL and is not PostgreSQL. The search_path finds the tables, as for a
// session. The error is a *Failure or that of ctx.
func InspectPostgreSQL(ctx context.Context, conn *sql.Conn) (*Inspection, error) {
	if err := postgres.Tidy(ctx, conn); err != nil {
		return nil, dialect.Fail(err)
	}
	there, err := postgres.Holds(ctx, conn, `pg_catalog.to_regclass('latchkey_sessions') IS NOT NULL AND pg_catalog.to_regclass('latchkey_locks') IS NOT NULL`)
	if err != nil || !there {
		return &Inspection{Missing: true}, dialect.Fail(err)
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, dialect.Fail(err)
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(ctx, `SELECT pg_catalog.clock_timestamp(), l.key_space, l.key_id, l.id, l.holder, l.acquired, l.expires
		FROM (SELECT 1 AS one) AS o LEFT JOIN (SELECT k.key_space, k.key_id, s.id, s.holder, k.acquired, s.expires
			FROM latchkey_locks AS k JOIN latchkey_sessions AS s ON s.id = k.session) AS l ON true`)
	if err != nil {
		return nil, dialect.Fail(err)
	}
	defer rows.Close()
	i := new(Inspection)
	for rows.Next() {
		if err := i.scan(rows); err != nil {
			return nil, dialect.Fail(err)
		}
	}
	return i, dialect.Fail(rows.Err())
}

// scan reads a row. If there is no lock, all but its first column is NULL.
func (i *Inspection) scan(rows *sql.Rows) error {
	var (
		space             sql.NullInt16
		id, session       sql.NullInt64
		holder            sql.NullString
		acquired, expires sql.NullTime
	)
	if err := rows.Scan(&i.At, &space, &id, &session, &holder, &acquired, &expires); err != nil || !space.Valid {
		return err
	}
	i.Locks = append(i.Locks, dialect.LeasedLock{
		Space: dialect.Space(space.Int16), ID: id.Int64, Session: session.Int64, Holder: holder.String, Acquired: acquired.Time, Expires: expires.Time,
	})
	return nil
}
