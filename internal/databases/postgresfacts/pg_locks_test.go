package postgresfacts

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A key is (classid << 32) | objid if both are cast to bigint, also if it is
// negative. With objid::int it is wrong for half of all keys: those whose low
// half is negative as a signed number. A pair is classid::int4, objid::int4.
func TestKeyFromPgLocks(t *testing.T) {
	keys := []int64{0, 1, -1, 42, math.MaxInt32, math.MinInt32, math.MaxInt32 + 1, math.MinInt32 - 1, 1 << 32, math.MaxInt64, math.MinInt64}
	for range 100 {
		keys = append(keys, int64(rand.Uint64()))
	}
	var steps []step
	for _, key := range keys {
		wrong := int32(key) < 0 && key>>32 != -1
		class, object := int32(key>>32), int32(key)
		steps = append(steps,
			a(fmt.Sprintf("SELECT pg_advisory_lock((%d)::bigint)", key), ""),
			b("SELECT (classid::bigint << 32) | objid::bigint"+here, fmt.Sprint(key)),
			b(fmt.Sprintf("SELECT (classid::bigint << 32) | objid::int <> (%d)", key)+here+" AND objsubid = 1", fmt.Sprint(wrong)),
			a("SELECT pg_advisory_unlock_all()", ""),
			a(fmt.Sprintf("SELECT pg_advisory_lock((%d)::int, (%d)::int)", class, object), ""),
			b("SELECT classid::int4 || ' ' || objid::int4"+here+" AND objsubid = 2", fmt.Sprint(class, " ", object)),
			a("SELECT pg_advisory_unlock_all()", ""),
		)
	}
	play(t, steps...)
}

// Each database of a server has its own locks, and pg_locks shows the locks of
// all. A query for a holder has to name the database.
func TestPgLocksShowsOtherDatabases(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		one, other := dbtest.Conn(t, dbtest.Open(t, driver, dsn)), dbtest.Conn(t, dbtest.Open(t, driver, pgtest.Database(t)))
		key := fmt.Sprintf("(%d)", rand.Int64())
		expect(t, one, "SELECT pg_try_advisory_lock"+key, "true")
		expect(t, other, "SELECT pg_try_advisory_lock"+key, "true")
		of := " AND (classid::bigint << 32) | objid::bigint = " + key
		expect(t, one, "SELECT count(*)"+advisory+of, "2")
		expect(t, one, "SELECT count(*)"+here+of, "1")
	})
}

// An ordinary role sees which session holds a lock, which waits for it and
// since when. It sees the statements and addresses of others only with
// pg_monitor. It may not end their sessions without pg_signal_backend, nor set
// deadlock_timeout.
func TestWhatAnOrdinaryRoleSees(t *testing.T) {
	dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		db := dbtest.Open(t, driver, cluster.DSN(""))
		dbtest.Execute(t, db, "CREATE ROLE ordinary; CREATE ROLE monitor IN ROLE pg_monitor; CREATE ROLE signaller IN ROLE pg_signal_backend; CREATE ROLE service LOGIN")
		asService := dbtest.Open(t, driver, regexp.MustCompile("//[^@]*@").ReplaceAllString(cluster.DSN(""), "//service@"))
		holder, waiter, observer := dbtest.Conn(t, asService), dbtest.Conn(t, asService), dbtest.Conn(t, db)
		expect(t, holder, "SET application_name = 'holder'", "")
		expect(t, holder, "SELECT pg_advisory_lock(1)", "")
		holderPID, waiterPID := result(t, holder, "SELECT pg_backend_pid()"), result(t, waiter, "SELECT pg_backend_pid()")
		ended := make(chan string, 1)
		go func() { ended <- result(t, waiter, "SELECT pg_advisory_lock(1)") }()

		of := strings.NewReplacer("HOLDER", holderPID, "WAITER", waiterPID)
		terminate := of.Replace("SELECT pg_terminate_backend(HOLDER)")
		for role, all := range map[string]string{"ordinary": "", "monitor": "true"} {
			expect(t, observer, "SET ROLE "+role, "")
			lockertest.Eventually(t, role+" sees holder and waiter", func() bool { // waitstart appears a moment after the wait begins
				return result(t, observer, of.Replace(`SELECT (SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
					WHERE l.pid = HOLDER AND l.objid = 1 AND l.granted AND a.application_name = 'holder')
					AND (SELECT count(*) = 1 FROM pg_locks WHERE pid = WAITER AND NOT granted AND waitstart <= clock_timestamp())
					AND pg_blocking_pids(WAITER) = ARRAY[HOLDER]`)) == "true"
			})
			expect(t, observer, of.Replace(`SELECT NULLIF(state IS NOT NULL AND query LIKE '%advisory%' AND client_addr IS NOT NULL, false)
				FROM pg_stat_activity WHERE pid = WAITER`), all)
			expect(t, observer, "SET deadlock_timeout = '1s'", "42501")
			expect(t, observer, terminate, "42501")
			expect(t, observer, "RESET ROLE", "")
		}
		expect(t, observer, "SET ROLE signaller", "")
		expect(t, observer, terminate, "true")
		if got := <-ended; got != "" {
			t.Errorf("the waiter got %q", got)
		}
	})
}
