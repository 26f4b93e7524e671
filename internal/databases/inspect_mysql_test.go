package databases

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// nameOf is the name of a key's lock in SQL, as docs/databases/mariadb-mysql.md has
// it.
const nameOf = `CONCAT('latchkey.', LEFT(SHA2(DATABASE(), 256), 8), '.0.', LOWER(LPAD(HEX(?), 16, '0')))`

// The two places where MariaDB lists its locks.
var lockLists = map[string][]string{
	"metadata_lock_info": {"--performance-schema=OFF"},
	"performance_schema": {"--metadata-lock-info=OFF", "--performance-schema=ON", "--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON"},
}

// Inspect shows the holders of keys and the connections that wait in GET_LOCK. It
// shows no lock of another database, of another program, or of a Session itself.
func TestInspectMySQL(t *testing.T) {
	t.Parallel()
	for list, options := range lockLists {
		t.Run(list, func(t *testing.T) {
			t.Parallel()
			server := mariadbtest.New(t, options...)
			dsn := server.Database(t)
			db := open(t, "mysql", dsn)
			s := session(t, open(t, "mysql", dsn))
			keys := []sqllock.Key{sqllock.Namespace("export").Key("user-1"), sqllock.ID(-3), sqllock.Pair(-7, 8), sqllock.ID(1)}
			for _, key := range keys {
				mustLock(t, s, key)
			}
			mustLock(t, session(t, open(t, "mysql", server.Database(t))), sqllock.ID(9))
			waiter := mustConn(t, db)
			getLock(t, waiter, `'another program', 0`)
			end := waitInGetLock(t, waiter, 1)
			var seen *lockwatch.Snapshot
			lockertest.Eventually(t, "the waiter is seen", func() bool {
				seen = inspect(t, db)
				return len(seen.Waiters) == 1
			})
			if seen.Dialect != sqllock.MySQL || len(seen.Holders) != len(keys) || seen.Heartbeats+seen.Waits+seen.Leases != "" {
				t.Errorf("%+v", seen)
			}
			pid := 0
			for _, key := range keys {
				holders, _ := seen.Find(key)
				if len(holders) != 1 || holders[0].Process.PID == 0 || holders[0].Shared {
					t.Fatalf("key %d: %+v", key.Int64(), holders)
				}
				p := holders[0].Process
				if pid != 0 && p.PID != pid || p.State != "Sleep" || !strings.HasPrefix(p.Address, "127.0.0.1") || p.StateSince.After(seen.At) {
					t.Errorf("key %d: %+v", key.Int64(), p)
				}
				pid = p.PID
			}
			w := seen.Waiters[0]
			if w.Key != sqllock.ID(1) || w.Process.PID != connectionID(t, db, nameOf, 1, pid) || len(w.BlockedBy) != 1 || w.BlockedBy[0] != pid || w.Since.IsZero() {
				t.Errorf("waiter %+v, holder %d", w, pid)
			}
			if text := seen.String(); strings.Contains(text, "table") || !strings.Contains(text, "Sleep") {
				t.Errorf("text:\n%s", text)
			}
			end()
		})
	}
}

// connectionID checks that pid holds the key with this number, and returns the id
// of the one connection that waits.
func connectionID(t *testing.T, db *sql.DB, name string, key, pid int) int {
	t.Helper()
	if holder := number(t, db, "SELECT IS_USED_LOCK("+name+")", key); holder != pid {
		t.Errorf("the holder is %d, not %d", holder, pid)
	}
	return number(t, db, "SELECT ID FROM information_schema.processlist WHERE STATE = 'User lock'")
}

// An ordinary user sees who holds which key, and nothing of other users'
// connections.
func TestInspectMySQLOrdinaryUser(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t, lockLists["metadata_lock_info"]...)
	dsn := server.Database(t)
	name := dsn[strings.LastIndexByte(dsn, '/')+1:]
	must(t, server.Execute("CREATE USER plain; GRANT SELECT ON "+name+".* TO plain"))
	mustLock(t, session(t, open(t, "mysql", dsn)), sqllock.ID(1))
	s := inspect(t, open(t, "mysql", server.DSNOf("plain", name)))
	if len(s.Holders) != 1 || s.Holders[0].Process.PID == 0 || s.Holders[0].Process.State != "" {
		t.Errorf("%v", s)
	}
}

// The server finds a cycle of waits in GET_LOCK at once, and ends one of the waits.
// Its session keeps its other locks. So a Cycle of such waits ends by itself.
func TestMySQLDeadlock(t *testing.T) {
	t.Parallel()
	db := open(t, "mysql", mariadbtest.Database(t))
	one, two := mustConn(t, db), mustConn(t, db)
	getLock(t, one, nameOf+", 0", 1)
	getLock(t, two, nameOf+", 0", 2)
	end := waitInGetLock(t, one, 2)
	lockertest.Eventually(t, "one waits", func() bool { return len(inspect(t, db).Waiters) == 1 })
	var got sql.NullInt64
	err := two.QueryRowContext(t.Context(), "SELECT GET_LOCK("+nameOf+", 1000)", 1).Scan(&got)
	if err == nil || !strings.Contains(err.Error(), "1213") {
		t.Errorf("the second wait: %v, %v", got, err)
	}
	if s := inspect(t, db); len(s.Holders) != 2 || len(s.Waiters) != 1 || len(s.Cycles()) != 0 {
		t.Errorf("afterwards:\n%v", s)
	}
	end()
}

func getLock(t *testing.T, conn *sql.Conn, args string, values ...any) {
	t.Helper()
	var got sql.NullInt64
	if err := conn.QueryRowContext(t.Context(), "SELECT GET_LOCK("+args+")", values...).Scan(&got); err != nil || got.Int64 != 1 {
		t.Fatalf("GET_LOCK: %v, %v", got, err)
	}
}

// waitInGetLock makes conn wait for key until end is called, at the latest at the
// end of the test.
func waitInGetLock(t *testing.T, conn *sql.Conn, key int) (end func()) {
	t.Helper()
	var name string
	must(t, conn.QueryRowContext(t.Context(), "SELECT "+nameOf, key).Scan(&name))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = conn.ExecContext(ctx, "DO GET_LOCK('"+name+"', 1000)")
	}()
	end = func() { cancel(); <-done }
	t.Cleanup(end)
	return end
}
