package databases

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A user without the right to create tables holds locks all the same. A Fence
// reports what is missing, and the locks outlive its error.
func TestMySQLWithoutRightToCreate(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t)
	o := lockertest.Orders{Driver: "mysql", DSN: server.Database(t)}
	db := open(t, o.Driver, o.DSN+"?multiStatements=true")
	name := o.DSN[strings.LastIndexByte(o.DSN, '/')+1:]
	execute(t, db, "CREATE USER clerk@127.0.0.1; GRANT SELECT, INSERT, UPDATE, DELETE ON "+name+".* TO clerk@127.0.0.1")
	s := process(t, lockertest.Orders{Driver: "mysql", DSN: server.DSNOf("clerk", name)})
	lock := mustLock(t, s, sqllock.ID(1))
	if err := fencedWork(t, db, lock, 1); err == nil || !strings.Contains(err.Error(), "FenceSchema(MySQL)") {
		t.Errorf("Fence: %v", err)
	}
	if err := lock.Err(); err != nil {
		t.Errorf("the lock: %v", err)
	}
	create(t, db, sqllock.Schema(sqllock.MySQL), sqllock.FenceSchema(sqllock.MySQL))
	execute(t, db, "CREATE TABLE work (who INT)")
	must(t, fencedWork(t, db, lock, 1))
}
