package databases

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/tidbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// tidbNetwork is the network of a DSN whose connections go to the servers of its
// address in turn, as through a load balancer.
const tidbNetwork = "tidb"

func init() {
	var dialed atomic.Uint64
	mysql.RegisterDialContext(tidbNetwork, func(ctx context.Context, addresses string) (net.Conn, error) {
		all := strings.Split(addresses, "+")
		return new(net.Dialer).DialContext(ctx, "tcp", all[dialed.Add(1)%uint64(len(all))])
	})
}

// tidb makes a fresh database of TiDB. Each connection of a pool goes to another
// server than the one before.
func tidb(t testing.TB) lockertest.Orders {
	t.Helper()
	s := tidbtest.Shared(t)
	var addresses []string
	for n := range tidbtest.Servers {
		addresses = append(addresses, s.Addr(n))
	}
	return lockertest.Orders{
		Driver:     "mysql",
		DSN:        "root@" + tidbNetwork + "(" + strings.Join(addresses, "+") + ")/" + s.Database(t),
		LeaseTable: true,
	}
}

// isTiDB reports whether o is a database of TiDB.
func isTiDB(o lockertest.Orders) bool { return strings.Contains(o.DSN, "@"+tidbNetwork+"(") }

// No setting of a connection makes the rows of the past grant a key that another
// Session holds. A Session under such a setting gets an error, or works as usual.
func TestTiDBSettings(t *testing.T) {
	o := tidb(t)
	db := open(t, o.Driver, o.DSN)
	a := session(t, db, sqllock.WithLeaseTable())
	var before string
	if err := db.QueryRowContext(t.Context(), "SELECT NOW(6)").Scan(&before); err != nil {
		t.Fatal(err)
	}
	works := 0
	for i, setting := range []string{
		"tidb_read_staleness=-5",
		"tidb_snapshot=" + url.QueryEscape("'"+before+"'"),
		"tidb_low_resolution_tso=1",
		"tidb_enable_external_ts_read=1",
		"tidb_replica_read=" + url.QueryEscape("'prefer-leader'"),
		"tidb_txn_mode=" + url.QueryEscape("'pessimistic'"),
		"tidb_txn_mode=" + url.QueryEscape("'optimistic'"),
		"tidb_disable_txn_auto_retry=0&tidb_retry_limit=10",
		"tidb_constraint_check_in_place=1",
		"transaction_isolation=" + url.QueryEscape("'READ-COMMITTED'"),
		"autocommit=0",
		"timestamp=1",
		"sql_select_limit=1",
	} {
		t.Run(setting, func(t *testing.T) {
			key := sqllock.ID(int64(i))
			held := mustLock(t, a, key)
			b, err := sqllock.Open(t.Context(), open(t, o.Driver, o.DSN+"?"+setting), sqllock.WithLeaseTable())
			if err != nil {
				t.Log("Open:", err)
				mustUnlock(t, held)
				return
			}
			defer b.Close()
			if _, err := b.TryLock(t.Context(), key); err == nil {
				t.Fatal("a key was granted that another Session holds")
			}
			mustUnlock(t, held)
			_, err = b.TryLock(t.Context(), key)
			if err != nil {
				t.Log("TryLock:", err)
			} else if works++; !errors.Is(justTry(t, a, key), sqllock.ErrHeld) {
				t.Error("a key was granted that the Session under this setting holds")
			}
		})
	}
	if works < 5 {
		t.Errorf("%d settings let a Session work; most should", works)
	}
}

// justTry returns the error of a try.
func justTry(t *testing.T, s *sqllock.Session, key sqllock.Key) error {
	t.Helper()
	_, err := s.TryLock(t.Context(), key)
	return err
}
