package sqllock_test

import (
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// stuckQuery is for psql: who holds and who waits, with what the registry says.
const stuckQuery = `SELECT CASE WHEN l.granted THEN 'holds' ELSE 'waits' END AS what,
       CASE l.objsubid WHEN 1 THEN ((l.classid::bigint << 32) | l.objid::bigint)::text
                       ELSE l.classid::int4 || ', ' || l.objid::int4 END AS key,
       CASE l.mode WHEN 'ShareLock' THEN 'shared' ELSE 'exclusive' END AS mode,
       l.pid, pg_blocking_pids(l.pid) AS blocked_by, a.application_name, a.client_addr, a.state,
       h.namespace, h.name, h.holder, now() - coalesce(h.acquired, l.waitstart) AS since, now() - h.heartbeat AS heartbeat_age
FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
LEFT JOIN lock_heartbeats h ON l.granted AND h.pid = l.pid AND h.backend_start = a.backend_start AND h.key_space = l.objsubid - 1
      AND h.key_id = ((l.classid::bigint << 32) | l.objid::bigint) AND h.shared = (l.mode = 'ShareLock')
WHERE l.locktype = 'advisory' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
UNION ALL
SELECT 'polls', CASE w.key_space WHEN 0 THEN w.key_id::text ELSE (w.key_id >> 32) || ', ' || (w.key_id & 4294967295)::bit(32)::int4 END,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       'session ' || w.process || ', ' || w.waiters || ' callers' || CASE w.held_space WHEN -1 THEN '' ELSE ' holding ' || w.held_id END,
       now() - w.since, now() - w.heartbeat
FROM lock_waits w WHERE w.expires > now()
ORDER BY key, what`

func TestStuckQuery(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := withRegistry(t, driver, dsn)
		s := session(t, driver, dsn)
		key, wanted := sqllock.Namespace("export").Key("user-1"), sqllock.Pair(-7, -8)
		mustLock(t, s, key)
		mustLock(t, s, wanted)
		beat{session: 5, key: key, name: "user-1"}.write(t, db)
		tx, _ := client(t, db)
		inBackground(t, tx, "SELECT pg_advisory_xact_lock(-7, -8)")
		lockertest.Eventually(t, "it waits", func() bool { return len(inspect(t, db).Waiters) == 1 })
		poll(t, db, 5, &key, wanted, time.Minute)
		type row struct {
			what, key string
			blocked   bool
			name      sql.NullString
		}
		rows, err := db.Query("SELECT what, key, blocked_by IS NOT NULL AND cardinality(blocked_by) > 0, name FROM (" + stuckQuery + ") q")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		got := map[row]bool{}
		for rows.Next() {
			var r row
			if err := rows.Scan(&r.what, &r.key, &r.blocked, &r.name); err != nil {
				t.Fatal(err)
			}
			got[r] = true
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []row{
			{"holds", strconv.FormatInt(key.Int64(), 10), false, sql.NullString{String: "user-1", Valid: true}},
			{"holds", "-7, -8", false, sql.NullString{}},
			{"waits", "-7, -8", true, sql.NullString{}},
			{"polls", "-7, -8", false, sql.NullString{}},
		} {
			if !got[want] {
				t.Errorf("no %+v in %+v", want, got)
			}
		}
		if len(got) != 4 {
			t.Errorf("%+v", got)
		}
	})
}
