package worker

import (
	"context"
	"database/sql"
	"strings"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Schema creates the tables of fenced writes in PostgreSQL, in addition to
// those of sqllock.FenceSchema. N counts the writes of a key in the order of
// their commits, since each write keeps the counter's row locked until it
// commits.
const Schema = tables + `;
GRANT SELECT, INSERT, UPDATE ON counters, writes, latchkey_fence TO PUBLIC`

const tables = `
CREATE TABLE counters (key bigint PRIMARY KEY, n bigint NOT NULL);
CREATE TABLE writes (key bigint, n bigint, lock bigint, number bigint, timeline bigint, lsn bigint, PRIMARY KEY (key, n))`

// mysqlTables is tables for MySQL, where two of the names are reserved words.
const mysqlTables = "CREATE TABLE counters (`key` bigint PRIMARY KEY, n bigint NOT NULL);" +
	"CREATE TABLE writes (`key` bigint, n bigint, `lock` bigint, number bigint, timeline bigint, lsn bigint, PRIMARY KEY (`key`, n))"

// Tables returns the statements that create all tables of fenced writes in a
// kind of database.
func Tables(d sqllock.Dialect) []string {
	own := Schema
	switch d {
	case sqllock.SQLite:
		own = tables
	case sqllock.MySQL:
		own = mysqlTables
	}
	return append(sqllock.FenceSchema(d), strings.Split(own, ";")...)
}

// Store stores, as a part of tx, w and the token that the fence has noted for its
// key. It is for PostgreSQL and SQLite.
func Store(ctx context.Context, tx *sql.Tx, w history.Write) error {
	var n int64
	err := tx.QueryRowContext(ctx, `INSERT INTO counters (key, n) VALUES ($1, 1)
		ON CONFLICT (key) DO UPDATE SET n = counters.n + 1 RETURNING n`, w.Key).Scan(&n)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO writes (key, n, lock, number, timeline, lsn)
		SELECT key_id, $2, $3, $4, timeline, lsn FROM latchkey_fence WHERE key_space = 0 AND key_id = $1`,
		w.Key, n, w.Lock, w.Number)
	return err
}

// storeMySQL is Store for MySQL and MariaDB.
func storeMySQL(ctx context.Context, tx *sql.Tx, w history.Write) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO counters (`key`, n) VALUES (?, 1) ON DUPLICATE KEY UPDATE n = n + 1", w.Key)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO writes (`key`, n, `lock`, number, timeline, lsn)"+
		" SELECT f.key_id, c.n, ?, ?, f.timeline, f.lsn FROM latchkey_fence f JOIN counters c ON c.`key` = f.key_id"+
		" WHERE f.key_space = 0 AND f.key_id = ?", w.Lock, w.Number, w.Key)
	return err
}

// store is Store for the database of w.
func (w *work) store(ctx context.Context, tx *sql.Tx, of history.Write) error {
	if w.config.Database == sqllock.MySQL {
		return storeMySQL(ctx, tx, of)
	}
	return Store(ctx, tx, of)
}
