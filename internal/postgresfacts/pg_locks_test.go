package postgresfacts

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// edges are the numbers at the edges of the key spaces.
var edges = []int64{
	0, 1, -1, 42, math.MaxInt32, math.MinInt32, math.MaxInt32 + 1, math.MinInt32 - 1, 1 << 32, math.MaxInt64, math.MinInt64,
}

// A key is (classid << 32) | objid if both are cast to bigint, also if it is
// negative. With objid::int it is wrong for half of all keys: those whose low
// half is negative as a signed number. A pair is classid::int4, objid::int4.
func TestKeyFromPgLocks(t *testing.T) {
	keys := slices.Clone(edges)
	for range 200 {
		keys = append(keys, int64(rand.Uint64()))
	}
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		conn := connection(t, db)
		want := map[int64]bool{}
		for _, key := range keys {
			want[key] = true
			executeOn(t, conn, fmt.Sprintf("SELECT pg_advisory_lock((%d)::bigint)", key))
		}
		rows, err := db.Query(`SELECT (classid::bigint << 32) | objid::bigint, (classid::bigint << 32) | objid::int
			FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND pid = $1`, backendPID(t, conn))
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var key, wrongCast int64
			if err := rows.Scan(&key, &wrongCast); err != nil {
				t.Fatal(err)
			}
			if !want[key] {
				t.Errorf("pg_locks shows key %d, which is not held", key)
			}
			delete(want, key)
			if wrong := int32(key) < 0 && key>>32 != -1; (wrongCast != key) != wrong {
				t.Errorf("with objid::int key %d is %d", key, wrongCast)
			}
		}
		if err := rows.Err(); err != nil || len(want) > 0 {
			t.Errorf("pg_locks does not show %v; %v", want, err)
		}
		pairsFromPgLocks(t, db, conn)
	})
}

func pairsFromPgLocks(t *testing.T, db *sql.DB, conn *sql.Conn) {
	t.Helper()
	n, pid := 0, backendPID(t, conn)
	for _, class := range edges {
		for _, object := range edges {
			if class != int64(int32(class)) || object != int64(int32(object)) {
				continue
			}
			n++
			executeOn(t, conn, fmt.Sprintf("SELECT pg_advisory_lock((%d)::int, (%d)::int)", class, object))
			if number(t, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
				AND pid = $1 AND classid::int4 = $2::int AND objid::int4 = $3::int`, pid, class, object) != 1 {
				t.Errorf("pg_locks does not show pair %d, %d", class, object)
			}
		}
	}
	if got := number(t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND pid = $1", pid); got != n {
		t.Errorf("pg_locks shows %d pairs, want %d", got, n)
	}
}

// Each database of a server has its own locks, and pg_locks shows the locks of
// all. A query for a holder has to name the database.
func TestPgLocksShowsOtherDatabases(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		here, there := open(t, driver, dsn), open(t, driver, pgtest.Database(t))
		key := fmt.Sprintf("(%d)", rand.Int64())
		expectBool(t, connection(t, here), "SELECT pg_try_advisory_lock"+key, true)
		expectBool(t, connection(t, there), "SELECT pg_try_advisory_lock"+key, true)
		query := "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32) | objid::bigint = " + key
		if n := number(t, here, query); n != 2 {
			t.Errorf("pg_locks shows %d holders in all databases, want 2", n)
		}
		if n := number(t, here, query+" AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 1 {
			t.Errorf("pg_locks shows %d holders in this database, want 1", n)
		}
	})
}

// An ordinary role sees which session holds a lock, which waits for it and
// since when. It sees the statements and addresses of others only with
// pg_monitor. It may not end their sessions without pg_signal_backend, nor set
// deadlock_timeout.
func TestWhatAnOrdinaryRoleSees(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		db := open(t, driver, cluster.DSN(""))
		execute(t, db, "CREATE ROLE ordinary; CREATE ROLE monitor IN ROLE pg_monitor; CREATE ROLE signaller IN ROLE pg_signal_backend; CREATE ROLE service LOGIN")
		asService := open(t, driver, regexp.MustCompile("//[^@]*@").ReplaceAllString(cluster.DSN(""), "//service@"))
		holder, waiter, observer := connection(t, asService), connection(t, asService), connection(t, db)
		executeOn(t, holder, "SET application_name = 'holder'")
		executeOn(t, holder, "SELECT pg_advisory_lock(1)")
		holderPID, waiterPID := backendPID(t, holder), backendPID(t, waiter)
		ended := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that the test fails instead of hanging
		defer cancel()
		go func() {
			_, err := waiter.ExecContext(ctx, "SELECT pg_advisory_lock(1)")
			ended <- err
		}()
		lockertest.Eventually(t, "the waiter waits", func() bool { return isBlocked(t, db, waiterPID) })

		shows := fmt.Sprintf(`(SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE l.pid = %d AND l.objid = 1 AND l.granted AND a.application_name = 'holder')
			AND (SELECT count(*) = 1 FROM pg_locks WHERE pid = %d AND NOT granted AND waitstart <= clock_timestamp())
			AND pg_blocking_pids(%[2]d) = ARRAY[%[1]d]`, holderPID, waiterPID)
		details := fmt.Sprintf(`SELECT state IS NOT NULL AND query LIKE '%%advisory%%' AND client_addr IS NOT NULL
			FROM pg_stat_activity WHERE pid = %d`, waiterPID)
		for role, all := range map[string]bool{"ordinary": false, "monitor": true} {
			executeOn(t, observer, "SET ROLE "+role)
			lockertest.Eventually(t, role+" sees holder and waiter", func() bool {
				var seen sql.NullBool
				if err := observer.QueryRowContext(t.Context(), "SELECT "+shows).Scan(&seen); err != nil {
					t.Fatal(err)
				}
				return seen.Bool // waitstart appears a moment after the wait begins
			})
			var seen sql.NullBool
			if err := observer.QueryRowContext(t.Context(), details).Scan(&seen); err != nil || seen.Bool != all {
				t.Errorf("%s sees the statements of others: %v, %v, want %v", role, seen.Bool, err, all)
			}
			for _, forbidden := range []string{"SET deadlock_timeout = '1s'", "SELECT pg_terminate_backend(" + strconv.Itoa(holderPID) + ")"} {
				if _, err := observer.ExecContext(t.Context(), forbidden); stateOf(err) != "42501" {
					t.Errorf("%s: %s: %v, want SQLSTATE 42501", role, strings.Fields(forbidden)[1], err)
				}
			}
			executeOn(t, observer, "RESET ROLE")
		}
		executeOn(t, observer, "SET ROLE signaller")
		expectBool(t, observer, "SELECT pg_terminate_backend("+strconv.Itoa(holderPID)+")", true)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
