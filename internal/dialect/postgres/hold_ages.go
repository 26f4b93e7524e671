package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// holdAges reads rows of other processes that are alive. Several rows of a key
// are those of readers, or one is left from a holder before: the latest counts.
//
// The start of a process is hidden from some roles. The pid alone counts then.
const holdAges = `SELECT coalesce(pg_catalog.json_agg(ages), '[]')::text FROM (
	SELECT h.key_space AS "Space", h.key_id AS "ID", (EXTRACT(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.max(h.acquired)) * 1000000000)::bigint AS "Age"
	FROM TABLE AS h JOIN pg_catalog.json_to_recordset(($1)::text::json) AS k ("Space" smallint, "ID" bigint) ON (h.key_space, h.key_id) = (k."Space", k."ID")
	WHERE h.process <> ($2)::bigint AND h.expires > pg_catalog.clock_timestamp()
	AND EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity(h.pid) AS a WHERE a.backend_start IS NULL OR a.backend_start = h.backend_start)
	GROUP BY 1, 2) AS ages`

// HoldAges returns for how long processes other than this one have held keys,
// as far as the registry has them. It borrows a connection of db for one
// statement, and does not wait for one if all are in use. The error is a
// *Failure or that of ctx.
func HoldAges(ctx context.Context, db *sql.DB, tables Registry, process int64, keys []dialect.Key) (map[dialect.Key]time.Duration, error) {
	if stats := db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
		return nil, dbconn.ErrNoConnection
	}
	return onPool(ctx, db, func(conn *sql.Conn) (map[dialect.Key]time.Duration, error) {
		asked, err := json.Marshal(keys)
		if err != nil {
			return nil, err
		}
		var text string
		query := strings.Replace(holdAges, "TABLE", tables.Heartbeats.Name, 1)
		if err := conn.QueryRowContext(ctx, query, string(asked), process).Scan(&text); err != nil {
			return nil, err
		}
		var held []HeldKey
		err = json.Unmarshal([]byte(text), &held)
		ages := make(map[dialect.Key]time.Duration)
		for _, h := range held {
			ages[h.Key] = max(h.Age, 0)
		}
		return ages, err
	})
}
