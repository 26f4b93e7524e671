package sqllock_test

import (
	"database/sql"
	"errors"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// isFree reports whether the server holds no lock on the key with this number.
func isFree(t *testing.T, observer *sql.DB, number64 int64) bool {
	t.Helper()
	return number(t, observer, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND classid = 0 AND objid = `+
		strconv.FormatInt(number64, 10)+` AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 0
}

// inMidStatement sends a statement of s to the server without its last bytes.
func inMidStatement(t *testing.T, w *lossyProxy, s *sqllock.Session) {
	t.Helper()
	const sync = 5 // bytes of the message that ends a statement
	w.change(func(w *lossyProxy) { w.truncate = sync })
	if _, err := s.TryLock(t.Context(), sqllock.ID(2)); !errors.Is(err, sqllock.ErrUnavailable) {
		t.Fatalf("TryLock whose statement lost its end: %v, want ErrUnavailable", err)
	}
}

// The server gets a statement without its end, and the client's host is alive.
// The server's timeouts for idle sessions do not run then.
func TestLongStatementWithoutItsEnd(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		for _, encrypted := range []bool{false, true} {
			dsn := cluster.DSN("")
			observer := open(t, driver, dsn)
			if encrypted {
				dsn = pgtest.OverTLS(dsn)
			}
			w, through := startLossyProxy(t, dsn)
			s := session(t, driver, through, shortLease())
			lock := lockSoon(t, s, sqllock.ID(1))
			pid := number(t, observer, sessionPID)
			inMidStatement(t, w, s)
			if !encrypted {
				const reading = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event = 'ClientRead' AND pid = $1"
				if number(t, observer, reading, pid) != 1 {
					t.Fatal("the server does not wait for the end of a statement")
				}
			}
			lockertest.Eventually(t, "the key is free", func() bool { return isFree(t, observer, 1) })
			if err := lock.Err(); err != sqllock.ErrLost {
				t.Errorf("TLS %v: the key is free, and its holder's Err is %v", encrypted, err)
			}
			servesAgain(t, s, sqllock.ID(1))
			lockertest.Eventually(t, "the server process of the lost connection is gone", func() bool {
				return number(t, observer, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
			})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			lockertest.Eventually(t, "no connection of the Session remains", func() bool { return sessions(t, observer) == 0 })
		}
	}, pgtest.WithTLS())
}
