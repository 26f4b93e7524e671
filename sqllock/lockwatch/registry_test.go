package lockwatch_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A beat is a row of latchkey_heartbeats that a test writes in place of a Session.
type beat struct {
	session int64
	key     sqllock.Key
	age     time.Duration // of the heartbeat
	earlier bool          // of an earlier process with the same PID
	shared  bool
	name    any // nil: none
}

// write writes b for the server process that holds the lock, and returns its PID.
func (b beat) write(t *testing.T, db *sql.DB) (pid int) {
	t.Helper()
	mode := "ExclusiveLock"
	if b.shared {
		mode = "ShareLock"
	}
	space, id := spaceOf(b.key), b.key.Int64()
	lease := time.Hour
	if b.age >= 30*time.Second { // it shall be late: any process is soon idle for as long as this
		lease = 2 * time.Millisecond
	}
	err := db.QueryRow(`INSERT INTO latchkey_heartbeats AS h (process, pid, backend_start, key_space, key_id, namespace, name, holder, acquired, heartbeat, expires, shared)
		SELECT $1::bigint, a.pid, a.backend_start - CASE WHEN $2::boolean THEN interval '1 microsecond' ELSE '0' END, $3::smallint, $4::bigint,
			$5::text, $6::text, 'host/1', beat.at - interval '1 second', beat.at, beat.at + make_interval(secs => $7::float8), $8::boolean
		FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid), (SELECT now() - make_interval(secs => $9::float8) AS at) AS beat
		WHERE l.locktype = 'advisory' AND l.granted AND l.mode = $10::text AND l.objsubid = $3::smallint + 1
			AND (l.classid::bigint << 32) | l.objid::bigint = $4::bigint AND a.datname = current_database()
		ON CONFLICT (pid, backend_start, key_space, key_id) DO UPDATE
			SET process = excluded.process, acquired = least(h.acquired, excluded.acquired), heartbeat = excluded.heartbeat, expires = excluded.expires
		RETURNING pid`,
		b.session, b.earlier, space, id, string(b.key.Namespace()), b.name, lease.Seconds(), b.shared, b.age.Seconds(), mode).Scan(&pid)
	if err != nil {
		t.Fatalf("no heartbeat for key %d: %v", id, err)
	}
	return pid
}

// poll writes a row of latchkey_waits: two callers of session wait for a key. They
// hold another key, or it is not known what they hold.
func poll(t *testing.T, db *sql.DB, session int64, holding *sqllock.Key, wanted sqllock.Key, lease time.Duration) {
	t.Helper()
	heldSpace, heldID := -1, int64(0)
	if holding != nil {
		heldSpace, heldID = spaceOf(*holding), holding.Int64()
	}
	dbtest.Execute(t, db, `INSERT INTO latchkey_waits (process, key_space, key_id, held_space, held_id, waiters, since, heartbeat, expires)
		VALUES ($1, $2, $3, $4, $5, 2, now() - interval '3 seconds', now(), now() + make_interval(secs => $6::float8))`,
		session, spaceOf(wanted), wanted.Int64(), heldSpace, heldID, lease.Seconds())
}

func spaceOf(key sqllock.Key) int {
	if _, _, isPair := key.Pair(); isPair {
		return 1
	}
	return 0
}

// withRegistry returns a pool on a database with the tables of the registry.
func withRegistry(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db := dbtest.Open(t, driver, dsn)
	dbtest.Create(t, db, lockwatch.Schema(sqllock.PostgreSQL))
	dbtest.Create(t, db, lockwatch.Schema(sqllock.PostgreSQL)) // it may be run again
	return db
}

// registration returns the registration of key, which must be held, or nil.
func registration(t *testing.T, db *sql.DB, key sqllock.Key) *lockwatch.Registration {
	t.Helper()
	return holder(t, inspect(t, db), key).Registration
}

func inspect(tb testing.TB, db *sql.DB, opts ...lockwatch.InspectOption) *lockwatch.Snapshot {
	tb.Helper()
	s, err := lockwatch.Inspect(tb.Context(), db, opts...)
	if err != nil {
		tb.Fatalf("Inspect: %v", err)
	}
	return s
}
