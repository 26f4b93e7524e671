package worker

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Stored is what fenced writes have left in the tables of [Schema], in no order.
func Stored(ctx context.Context, db *sql.DB) (all []check.Stored, err error) {
	return StoredIn(ctx, db, sqllock.PostgreSQL)
}

// StoredIn is Stored in a kind of database.
func StoredIn(ctx context.Context, db *sql.DB, d sqllock.Dialect) (all []check.Stored, err error) {
	query := "SELECT key, n, timeline, lsn, lock, number FROM writes"
	if d == sqllock.MySQL {
		query = "SELECT `key`, n, timeline, lsn, `lock`, number FROM writes"
	}
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s check.Stored
		if err := rows.Scan(&s.Key, &s.N, &s.Timeline, &s.LSN, &s.Lock, &s.Number); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}
