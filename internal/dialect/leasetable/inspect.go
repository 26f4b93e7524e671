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
		text   string
	)
	err := readWhileBusy(ctx, conn, `SELECT `+sqliteMillis+`, count(*) FROM main.sqlite_master
		WHERE type = 'table' AND name IN ('latchkey_locks', 'latchkey_sessions')`, &now, &tables)
	if err != nil || tables < 2 {
		return &Inspection{At: time.UnixMilli(now), Missing: true}, dialect.Fail(err)
	}
	err = readWhileBusy(ctx, conn, `SELECT `+sqliteMillis+`, json_group_array(json_array(l.key_space, l.key_id, s.id, s.holder, l.acquired, s.expires))
		FROM main.latchkey_locks AS l JOIN main.latchkey_sessions AS s ON s.id = l.session`, &now, &text)
	return inspection(now, text, err)
}

// readWhileBusy scans the one row of query. It waits for another connection
// that has locked the file, as it does while it commits in a journal that is
// not write-ahead.
func readWhileBusy(ctx context.Context, conn *sql.Conn, query string, dest ...any) error {
	return untilFree(ctx, func() error { return conn.QueryRowContext(ctx, query).Scan(dest...) })
}

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
	var (
		now  int64
		text string
	)
	millis := func(moment string) string { return "(extract(epoch FROM " + moment + ") * 1000.0)::bigint" }
	err = tx.QueryRowContext(ctx, `SELECT `+millis("pg_catalog.clock_timestamp()")+`, (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(
			l.key_space, l.key_id, s.id, s.holder, `+millis("l.acquired")+`, `+millis("s.expires")+`))::text, '[]')
		FROM latchkey_locks AS l JOIN latchkey_sessions AS s ON s.id = l.session)`).Scan(&now, &text)
	return inspection(now, text, err)
}

// inspection returns what a query has selected: the time in milliseconds since
// 1970, and the locks as a JSON list. err is that of the query.
func inspection(now int64, text string, err error) (*Inspection, error) {
	if err != nil {
		return nil, dialect.Fail(err)
	}
	var rows []row
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return nil, errForeignTable
	}
	i := &Inspection{At: time.UnixMilli(now)}
	for _, r := range rows {
		i.Locks = append(i.Locks, dialect.LeasedLock(r))
	}
	return i, nil
}

// A row is a lock as a database returns it: a list.
type row dialect.LeasedLock

// UnmarshalJSON reads the list. Times are milliseconds since 1970.
func (r *row) UnmarshalJSON(text []byte) error {
	var acquired, expires int64
	err := json.Unmarshal(text, &[]any{&r.Space, &r.ID, &r.Session, &r.Holder, &acquired, &expires})
	r.Acquired, r.Expires = time.UnixMilli(acquired), time.UnixMilli(expires)
	return err
}

// errForeignTable is the failure of tables with these names and other contents.
var errForeignTable = &dialect.Failure{Kind: dialect.Statement, Reason: "latchkey_locks or latchkey_sessions is not a table made by sqllock.Schema"}
