package databases

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// replicating starts a server that can replicate, with the database app and a
// user of it who has no other right. Each server has its own id.
func replicating(t *testing.T, id int) *mariadbtest.Server {
	t.Helper()
	return mariadbtest.New(t, mariadbtest.ReplicationOptions(id)...)
}

// withApp makes the database app and its user, in the server's log.
func withApp(t *testing.T, s *mariadbtest.Server) {
	t.Helper()
	run(t, s, "CREATE DATABASE app; CREATE USER app@'%'; GRANT ALL ON app.* TO app@'%'")
}

func run(t *testing.T, s *mariadbtest.Server, statements string) {
	t.Helper()
	must(t, s.Execute(statements))
}

// awaitStatus waits until a status variable of s has a value.
func awaitStatus(t *testing.T, s *mariadbtest.Server, variable, want string) {
	t.Helper()
	db := open(t, "mysql", s.DSN(""))
	lockertest.Eventually(t, variable+" is "+want, func() bool {
		var name, value string
		return db.QueryRow("SHOW GLOBAL STATUS LIKE '"+variable+"'").Scan(&name, &value) == nil && value == want
	})
}

// awaitApp waits until s has the user app.
func awaitApp(t *testing.T, s *mariadbtest.Server) {
	t.Helper()
	db := open(t, "mysql", s.DSN(""))
	lockertest.Eventually(t, "the server has the user app", func() bool {
		return number(t, db, "SELECT count(*) FROM mysql.db WHERE User = 'app'") == 1
	})
}

// serves fails the test unless Open accepts the server for an ordinary user, and
// the doctor does.
func serves(t *testing.T, state string, s *mariadbtest.Server) {
	t.Helper()
	db := open(t, "mysql", s.DSNOf("app", "app"))
	session, err := sqllock.Open(t.Context(), db)
	if err != nil {
		t.Errorf("%s: Open: %v", state, err)
		return
	}
	_ = session.Close()
	if c, _ := doctor(t, db).Find("exclusion"); c.State != lockdoctor.OK {
		t.Errorf("%s: the doctor says of exclusion: %q, %q", state, c.State, c.Reason)
	}
}

const (
	saysReadOnly = "read-only"
	saysFed      = "without read_only"
)

// Open rejects a replica, with read_only and without it, by what an ordinary
// user may read. A Session that comes to a replica is refused until the replica
// is promoted.
func TestLongMySQLReplica(t *testing.T) {
	t.Parallel()
	primary, replica := replicating(t, 1), replicating(t, 2)
	withApp(t, primary)
	must(t, replica.Follow(primary, ""))
	awaitApp(t, replica)
	awaitStatus(t, replica, "Slave_running", "ON")
	dsn := replica.DSNOf("app", "app")
	serves(t, "the primary", primary)
	refuses(t, "a replica", dsn, saysFed)
	if _, err := sqllock.Open(t.Context(), open(t, "mysql", dsn), sqllock.WithLeaseTable()); !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), saysFed) {
		t.Errorf("Open with a lease table: %v, want ErrNotExclusive that says %q", err, saysFed)
	}
	run(t, replica, "SET GLOBAL read_only=ON")
	refuses(t, "a replica with read_only", dsn, saysReadOnly)
	run(t, replica, "SET GLOBAL read_only=OFF")

	db := open(t, "mysql", dsn)
	s := session(t, db, sqllock.WithDialect(sqllock.MySQL))
	if lock := mustLock(t, s, sqllock.ID(1)); lock.Unlock() != nil {
		t.Error("Unlock failed")
	}
	if c, _ := doctor(t, db, lockdoctor.WithSession(s)).Find("exclusion"); c.State != lockdoctor.OK {
		t.Errorf("the doctor of a Session that was opened by WithDialect: %q, %q", c.State, c.Reason)
	}

	run(t, replica, "STOP SLAVE")
	serves(t, "a promoted replica", replica)
	moved := process(t, lockertest.Orders{Driver: "mysql", DSN: dsn}, steady...)
	lock := mustLock(t, moved, sqllock.ID(2))
	run(t, replica, "START SLAVE")
	awaitStatus(t, replica, "Slave_running", "ON")
	run(t, replica, fmt.Sprintf("KILL %d", moved.Connections()[0].PID))
	awaitLoss(t, lock)
	awaitRefusal(t, moved, sqllock.ID(2), saysFed)
	run(t, replica, "STOP SLAVE")
	awaitGrant(t, "the Session serves on the promoted replica", moved, sqllock.ID(2))

	run(t, replica, "START SLAVE")
	awaitStatus(t, replica, "Slave_running", "ON")
	refuses(t, "a replica", dsn, saysFed)
	must(t, primary.Kill())
	awaitStatus(t, replica, "Slave_running", "OFF")
	serves(t, "a replica whose primary is gone", replica)
}

// Open accepts a primary that also receives changes of other servers, or did.
func TestLongMySQLPrimaryWithReplication(t *testing.T) {
	t.Parallel()
	one, two := replicating(t, 1), replicating(t, 2)
	withApp(t, one)
	must(t, two.Follow(one, ""))
	// Follow would write on the second server, to which the account is replicated.
	db := open(t, "mysql", two.DSN(""))
	lockertest.Eventually(t, "the account may replicate", func() bool {
		return number(t, db, "SELECT count(*) FROM mysql.user WHERE User = 'replicator' AND Repl_slave_priv = 'Y'") == 1
	})
	run(t, one, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='replicator',"+
		" MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1; START SLAVE", two.Port()))
	for _, s := range []*mariadbtest.Server{one, two} {
		awaitStatus(t, s, "Slave_running", "ON")
		awaitStatus(t, s, "Slaves_connected", "1")
	}
	serves(t, "the first", one)
	serves(t, "the second, on which nothing was ever written", two)
	run(t, two, "STOP SLAVE")
	awaitStatus(t, one, "Slaves_connected", "0")
	awaitStatus(t, one, "Slave_running", "ON")
	serves(t, "the active one, while the passive one does not replicate", one)
}
