package databases

import (
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// newSwitchover starts a primary with a replica that takes no writes. Each has
// the tables and the same user.
func newSwitchover(t *testing.T) (primary, replica *mariadbtest.Server) {
	t.Helper()
	primary, replica = replicating(t, 1), replicating(t, 2)
	withApp(t, primary)
	db := open(t, "mysql", primary.DSN("app"))
	create(t, db, sqllock.Schema(sqllock.MySQL))
	withWork(t, lockertest.Orders{Driver: "mysql"}, db)
	must(t, replica.Follow(primary, ""))
	awaitApp(t, replica)
	awaitStatus(t, replica, "Slave_running", "ON")
	run(t, replica, "SET GLOBAL read_only=ON")
	return primary, replica
}

// promote makes replica a primary.
func promote(t *testing.T, replica *mariadbtest.Server) {
	t.Helper()
	run(t, replica, "STOP SLAVE; RESET SLAVE ALL")
	run(t, replica, "SET GLOBAL read_only=OFF")
}

// caughtUp waits until replica has all changes of primary.
func caughtUp(t *testing.T, primary, replica *mariadbtest.Server) {
	t.Helper()
	var position string
	must(t, open(t, "mysql", primary.DSN("")).QueryRow("SELECT @@gtid_binlog_pos").Scan(&position))
	db := open(t, "mysql", replica.DSN(""))
	lockertest.Eventually(t, "the replica has all changes", func() bool {
		return number(t, db, "SELECT MASTER_GTID_WAIT('"+position+"', 1)") == 0
	})
}

// In a planned switchover the primary becomes read-only first. Its holders are
// told, and its Sessions go to the new primary. No two hold a key.
func TestLongMySQLSwitchover(t *testing.T) {
	t.Parallel()
	primary, replica := newSwitchover(t)
	service := &address{Connector: connector(t, lockertest.Orders{Driver: "mysql", DSN: primary.DSNOf("app", "app")})}
	db := sql.OpenDB(service)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(-1) // a transaction begins where new connections go
	s := session(t, db, steady...)
	lock := mustLock(t, s, sqllock.ID(1))
	must(t, fencedWork(t, db, lock, 1))
	run(t, primary, "SET GLOBAL read_only=ON")
	awaitLoss(t, lock)
	if n := number(t, open(t, "mysql", primary.DSN("app")), namedLocks); n != 0 {
		t.Errorf("%d locks are left on the old primary", n)
	}
	caughtUp(t, primary, replica)
	promote(t, replica)
	service.leadTo(connector(t, lockertest.Orders{Driver: "mysql", DSN: replica.DSNOf("app", "app")}))
	awaitGrant(t, "the Session serves on the new primary", s, sqllock.ID(1))
	if err := fencedWork(t, db, mustLock(t, s, sqllock.ID(1)), 2); err != nil {
		t.Errorf("Fence on the new primary: %v", err)
	}
	if n := number(t, open(t, "mysql", replica.DSN("app")), "SELECT count(*) FROM work"); n != 2 {
		t.Errorf("the new primary has %d changes, want 2", n)
	}
}

// While both servers take writes, each of them grants the key, and draws tokens
// from its copy of one counter. The fence rejects the holder of the old primary
// on the new one, before and after another holder has been fenced there.
func TestLongMySQLSwitchoverStaleHolder(t *testing.T) {
	t.Parallel()
	primary, replica := newSwitchover(t)
	pools := []*sql.DB{open(t, "mysql", primary.DSNOf("app", "app")), open(t, "mysql", replica.DSNOf("app", "app"))}
	stale := mustLock(t, session(t, pools[0], steady...), sqllock.ID(1))
	must(t, fencedWork(t, pools[0], stale, 1))
	caughtUp(t, primary, replica)
	promote(t, replica)
	fencesApart(t, pools, []*sqllock.Lock{stale, mustLock(t, session(t, pools[1]), sqllock.ID(1))})
}
