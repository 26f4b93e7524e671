package sqllock_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// What a Session believes of its connection is what the server has: its process
// and its locks.
func TestConnectionsOfTheServer(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		s := session(t, driver, dsn)
		exports := sqllock.Namespace("export")
		mustLock(t, s, exports.Key("ada"))
		mustLock(t, s, sqllock.Pair(-3, 4))
		for range 2 {
			if _, err := s.TryRLock(t.Context(), sqllock.ID(-5)); err != nil {
				t.Fatal(err)
			}
		}
		mustLock(t, s, exports.Keyed([]byte("secret")).Key("ada"))
		list := s.Connections()
		if len(list) != 1 {
			t.Fatalf("%d connections, want 1", len(list))
		}
		c := list[0]
		if c.LeaseRemaining <= 0 || c.SecretChecks != 1 || len(c.Held) != 3 || len(c.Shared) != 1 || len(c.Pending) != 0 {
			t.Errorf("%+v", c)
		}
		db := open(t, driver, dsn)
		var start time.Time
		if err := db.QueryRowContext(t.Context(), "SELECT backend_start FROM pg_stat_activity WHERE pid = $1", c.PID).Scan(&start); err != nil {
			t.Fatal(err)
		}
		if !start.Equal(c.Start) {
			t.Errorf("process %d since %v, the server says %v", c.PID, c.Start, start)
		}
		has := number(t, db, fmt.Sprintf("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = %d", c.PID))
		if believed := len(c.Held) + len(c.Shared) + c.SecretChecks; has != believed {
			t.Errorf("the server has %d locks of the connection, the Session believes in %d", has, believed)
		}
		for _, key := range c.Held {
			wantsLock(t, db, c.PID, key, "ExclusiveLock")
		}
		wantsLock(t, db, c.PID, c.Shared[0], "ShareLock")
	})
}

// wantsLock checks that the server process has key once, in this mode. The
// columns are those of pg_locks: a bigint is in two of them.
func wantsLock(t *testing.T, db *sql.DB, pid int64, key sqllock.Key, mode string) {
	t.Helper()
	high, low, isPair := key.Pair()
	kind := 2
	if !isPair {
		high, low, kind = int32(key.Int64()>>32), int32(key.Int64()), 1
	}
	n := number(t, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1
		AND classid = $2 AND objid = $3 AND objsubid = $4 AND mode = $5`, pid, uint32(high), uint32(low), kind, mode)
	if n != 1 || key.Namespace() != "" {
		t.Errorf("the server has a key of the connection %d times in mode %s, with namespace %q; want once, and none", n, mode, key.Namespace())
	}
}
