package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// terminateHolder ends the connections that hold locks in the database.
const terminateHolder = `SELECT count(pg_terminate_backend(pid)) FROM pg_locks
	WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// A locker that sends nothing on its own learns of a loss by its next call. A
// ConnLocker serves no more then.
func TestUnlockFindsALoss(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		conn := connection(t, db)
		terminate := func() { number(t, db, terminateHolder) }
		// A terminated backend says so before it frees its locks, so each case has keys of its own.
		for name, tt := range map[string]struct {
			locks       sqllock.Locker
			first, next sqllock.Key
			end         func()
		}{
			"PerTx":                  {sqllock.PerTx(db), sqllock.ID(1), sqllock.ID(2), terminate},
			"OnConn":                 {sqllock.OnConn(connection(t, db)), sqllock.ID(3), sqllock.ID(4), terminate},
			"OnConn, owner unlocked": {sqllock.OnConn(conn), sqllock.ID(5), sqllock.ID(6), func() { execute(t, conn, "SELECT pg_advisory_unlock_all()") }},
		} {
			held := []*sqllock.Lock{mustLock(t, tt.locks, tt.first), mustLock(t, tt.locks, tt.next)}
			tt.end()
			if err := held[0].Err(); err != nil {
				t.Errorf("%s: Err before any call has shown the loss: %v", name, err)
			}
			if err := held[0].Unlock(); err != sqllock.ErrLost {
				t.Errorf("%s: Unlock: %v, want ErrLost", name, err)
			}
			if _, ok := tt.locks.(*sqllock.ConnLocker); ok {
				lockertest.Eventually(t, name+": the other lock is lost too", func() bool { return held[1].Err() == sqllock.ErrLost })
				if _, err := tt.locks.TryLock(t.Context(), sqllock.ID(7)); !errors.Is(err, sqllock.ErrClosed) && !errors.Is(err, sqllock.ErrUnavailable) {
					t.Errorf("%s: TryLock afterwards: %v", name, err)
				}
			} else {
				_ = held[1].Unlock()
				servesAgain(t, tt.locks, tt.first)
			}
		}
	})
}

// The owner uses its connection between calls of the lock, also after calls that
// were cancelled, and may close it at any moment.
func TestConnIsShared(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		conn := connection(t, db)
		locks := sqllock.OnConn(conn)
		for i := range 300 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond)
			lock, err := locks.TryLock(ctx, sqllock.ID(int64(i)))
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("TryLock: %v", err)
			}
			rows, queryErr := conn.QueryContext(t.Context(), "SELECT generate_series(1, 10)")
			if queryErr != nil {
				t.Fatalf("the owner's query: %v", queryErr)
			}
			n := 0
			for rows.Next() {
				n++
			}
			if err := errors.Join(rows.Err(), rows.Close()); n != 10 || err != nil {
				t.Fatalf("the owner's query: %d rows, %v", n, err)
			}
			if err == nil {
				unlock(t, lock)
			}
		}
		called := make(chan error)
		for i := range 3 {
			go func() {
				lock, err := locks.TryLock(context.Background(), sqllock.ID(int64(i)))
				_ = lock.Unlock()
				called <- err
			}()
		}
		_ = conn.Close()
		for range 3 {
			if err := <-called; err != nil && !errors.Is(err, sqllock.ErrClosed) && !errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("TryLock during Close: %v", err)
			}
		}
		for name, call := range map[string]func(context.Context, sqllock.Key) (*sqllock.Lock, error){"TryLock": locks.TryLock, "Lock": locks.Lock} {
			if _, err := call(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrClosed) || !errors.Is(err, sql.ErrConnDone) {
				t.Errorf("%s on a closed connection: %v, want ErrClosed", name, err)
			}
		}
	})
}

// A timeout of the server may come after the grant. The try fails then, and the
// key is free: in the database, and for the next call.
func TestConnTryFailsAfterTheGrant(t *testing.T) {
	eachDriver(t, func(t *testing.T, name, dsn string) {
		fail := false
		db := openWrapped(t, name, dsn, func(c driver.Conn) driver.Conn {
			return execConn{hiding(c), func(query string, send func(string) (driver.Result, error)) (driver.Result, error) {
				result, err := send(query)
				if err == nil && fail && strings.Contains(query, "pg_try_advisory_lock") {
					fail = false
					return nil, &pq.Error{Severity: "ERROR", Code: "57014", Message: "canceling statement due to statement timeout"}
				}
				return result, err
			}}
		})
		locks := sqllock.OnConn(connection(t, db))
		fail = true
		if _, err := locks.TryLock(t.Context(), sqllock.ID(1)); err == nil || fail {
			t.Fatalf("TryLock whose statement fails: %v; it has failed: %t", err, !fail)
		}
		if n := advisoryLocks(t, db); n != 0 {
			t.Errorf("%d locks after a try that failed", n)
		}
		unlock(t, mustLock(t, locks, sqllock.ID(1)))
	})
}
