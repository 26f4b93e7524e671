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
