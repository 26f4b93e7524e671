package databases

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
)

// keyLocks are the locks of keys in the connection's database.
const keyLocks = ` FROM information_schema.metadata_lock_info WHERE lock_type = 'User lock'
	AND table_schema REGEXP CONCAT('^latchkey[.]', LEFT(SHA2(DATABASE(), 256), 8), '[.][01][.]')`

const namedLocks = "SELECT count(*)" + keyLocks

func mariadb(t *testing.T) lockertest.Orders {
	return lockertest.Orders{Driver: "mysql", DSN: mariadbtest.Database(t)}
}

func isOfKind(err error, kind dialect.Kind) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && failure.Kind == kind
}

// Databases of one server have separate locks, as in PostgreSQL.
func TestMySQLDatabasesAreApart(t *testing.T) {
	t.Parallel()
	one, other := connect(t, mariadb(t)), connect(t, mariadb(t))
	for _, s := range []dialect.Session{one, other} {
		if got := exchange(t, s, dialect.Batch{Try: big(1)}); len(got.Busy) != 0 {
			t.Errorf("busy: %v", got.Busy)
		}
	}
}

// A connection comes from the pool with the locks and settings of its last
// user.
func TestMySQLForgottenLocks(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	s := connect(t, o)
	exchange(t, s, dialect.Batch{Try: big(1)})
	db := open(t, o.Driver, o.DSN)
	var name string
	must(t, db.QueryRow("SELECT table_schema"+keyLocks).Scan(&name))
	exchange(t, s, dialect.Batch{Release: big(1)})
	db.SetMaxOpenConns(2)
	conn, err := db.Conn(t.Context())
	must(t, err)
	execute(t, conn, "DO GET_LOCK('"+name+"', 0)")
	_ = conn.Close() // back to the pool
	careful, err := mysql.Dialect{}.Open(t.Context(), db, settings)
	must(t, err)
	defer careful.Destroy()
	if got := exchange(t, s, dialect.Batch{Try: big(1)}); len(got.Busy) > 0 {
		t.Error("a lock that was left on a pooled connection is still held")
	}
}
