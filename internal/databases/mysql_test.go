package databases

import (
	"errors"
	"reflect"
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

func isGone(err error) bool { return isOfKind(err, dialect.Gone) }

func isOfKind(err error, kind dialect.Kind) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && failure.Kind == kind
}

// The parts of a statement are computed in order. A key that is not held, and
// is released and tried in one batch, is reported as not held, and is held
// afterwards.
func TestMySQLOrder(t *testing.T) {
	t.Parallel()
	s := connect(t, mariadb(t))
	keys := append(big(1, 2, 3), pairs(1)...)
	got := exchange(t, s, dialect.Batch{Release: keys, Try: keys, Any: [][]dialect.Key{{keys[0], big(9)[0]}, big(9), big(9, 10), {}}})
	if !reflect.DeepEqual(got.NotHeld, keys) || len(got.Busy) != 0 || !reflect.DeepEqual(got.Won, []int{1, -1, 1, -1}) {
		t.Errorf("not held %v, busy %v, won %v", got.NotHeld, got.Busy, got.Won)
	}
	if got, want := held(t, s), append(big(1, 2, 3, 9, 10), pairs(1)...); !reflect.DeepEqual(got, want) {
		t.Errorf("held: %v, want %v", got, want)
	}
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

// The socket is found with all options of the driver.
func TestMySQLSocket(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	for _, options := range []string{"", "?tls=skip-verify", "?compress=true", "?readTimeout=5s&interpolateParams=true&parseTime=true"} {
		s, err := mysql.Dialect{}.Open(t.Context(), open(t, o.Driver, o.DSN+options), settings)
		if err != nil {
			t.Fatalf("%s: %v", options, err)
		}
		if s.Socket() == nil {
			t.Errorf("%s: the driver's socket was not found", options)
		}
		s.Abort()
		if err := s.Exchange(&dialect.Batch{}); !isGone(err) {
			t.Errorf("%s: Exchange after Abort: %v, want a Failure of Kind Gone", options, err)
		}
		s.Destroy()
	}
}
