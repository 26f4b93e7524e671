package postgres

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// holdAges reads rows of other processes that are alive. Several rows of a key
// are those of readers, or one is left from a holder before: the latest counts.
//
// The start of a process is hidden from some roles. The pid alone counts then.
const holdAges = `SELECT h.key_space, h.key_id, (EXTRACT(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.max(h.acquired)) * 1000000)::bigint
	FROM TABLE AS h
	WHERE (h.key_space = 0 AND h.key_id = ANY (($1)::text::bigint[]) OR h.key_space = 1 AND h.key_id = ANY (($2)::text::bigint[]))
	AND h.process <> ($3)::bigint AND h.expires > pg_catalog.clock_timestamp()
	AND EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity(h.pid) AS a WHERE a.backend_start IS NULL OR a.backend_start = h.backend_start)
	GROUP BY 1, 2`

// HoldAges returns for how long processes other than this one have held keys,
// as far as the registry has them. It borrows a connection of db for one
// statement, and does not wait for one if all are in use. The error is a
// *Failure or that of ctx.
func HoldAges(ctx context.Context, db *sql.DB, tables Registry, process int64, keys []dialect.Key) (map[dialect.Key]time.Duration, error) {
	if stats := db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		return nil, dbconn.ErrNoConnection
	}
	return onPool(ctx, db, func(conn *sql.Conn) (map[dialect.Key]time.Duration, error) {
		rows, err := conn.QueryContext(ctx, strings.Replace(holdAges, "TABLE", tables.Heartbeats.Name, 1),
			idsOf(keys, dialect.Bigint), idsOf(keys, dialect.TwoInts), process)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		ages := make(map[dialect.Key]time.Duration)
		for rows.Next() {
			var key dialect.Key
			var micros int64
			if err := rows.Scan(&key.Space, &key.ID, &micros); err != nil {
				return nil, err
			}
			ages[key] = max(time.Duration(micros)*time.Microsecond, 0)
		}
		return ages, rows.Err()
	})
}

// idsOf returns the ids of those keys that are in space, as a text of an array.
func idsOf(keys []dialect.Key, space dialect.Space) string {
	var ids []string
	for _, k := range keys {
		if k.Space == space {
			ids = append(ids, strconv.FormatInt(k.ID, 10))
		}
	}
	return "{" + strings.Join(ids, ",") + "}"
}
