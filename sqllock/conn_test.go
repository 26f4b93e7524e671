package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestConnClosed(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		conn := connection(t, db)
		locks := sqllock.OnConn(conn)
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func(context.Context, sqllock.Key) (*sqllock.Lock, error){"TryLock": locks.TryLock, "Lock": locks.Lock} {
			_, err := call(t.Context(), sqllock.ID(1))
			if !errors.Is(err, sqllock.ErrClosed) || !errors.Is(err, sql.ErrConnDone) {
				t.Errorf("%s on a closed connection: %v, want ErrClosed", name, err)
			}
		}
	})
}

// The owner of the connection may release its locks without the locker. Unlock
// reports that, and the locker serves no more.
func TestConnLocksReleasedByItsOwner(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		conn := connection(t, open(t, driver, dsn))
		locks := sqllock.OnConn(conn)
		held := []*sqllock.Lock{mustLock(t, locks, sqllock.ID(0)), mustLock(t, locks, sqllock.ID(1))}
		if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_unlock_all()"); err != nil {
			t.Fatal(err)
		}
		if err := held[0].Unlock(); err != sqllock.ErrLost {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		lockertest.Eventually(t, "the other lock is lost too", func() bool { return held[1].Err() == sqllock.ErrLost })
		if _, err := locks.TryLock(t.Context(), sqllock.ID(2)); !errors.Is(err, sqllock.ErrClosed) {
			t.Errorf("TryLock afterwards: %v, want ErrClosed", err)
		}
	})
}

// terminateHolder ends the connections that hold locks in the database.
const terminateHolder = `SELECT count(pg_terminate_backend(pid)) FROM pg_locks
	WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

func TestConnTerminated(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		conn := connection(t, db)
		locks := sqllock.OnConn(conn)
		held := []*sqllock.Lock{mustLock(t, locks, sqllock.ID(0)), mustLock(t, locks, sqllock.ID(1))}
		number(t, db, terminateHolder)
		if err := held[0].Err(); err != nil {
			t.Errorf("Err before any call has shown the loss: %v", err)
		}
		if err := held[0].Unlock(); err != sqllock.ErrLost {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		lockertest.Eventually(t, "the other lock is known to be lost", func() bool { return held[1].Err() == sqllock.ErrLost })
		if _, err := locks.TryLock(t.Context(), sqllock.ID(5)); !errors.Is(err, sqllock.ErrClosed) && !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("TryLock on a connection that is gone: %v", err)
		}
	})
}

// The owner uses its connection between calls of the lock, also after calls
// that were cancelled.
func TestConnIsShared(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		conn := connection(t, open(t, driver, dsn))
		locks := sqllock.OnConn(conn)
		for i := range 300 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond)
			lock, err := locks.TryLock(ctx, sqllock.ID(int64(i)))
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("TryLock: %v", err)
			}
			if n, err := countRows(t.Context(), conn, "SELECT generate_series(1, 10)"); err != nil || n != 10 {
				t.Fatalf("the owner's query: %d rows, %v", n, err)
			}
			if err == nil {
				unlock(t, lock)
			}
		}
	})
}

func countRows(ctx context.Context, conn *sql.Conn, query string) (n int, err error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}

// The owner may close the connection at any moment.
func TestConnClosedMeanwhile(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		for range 50 {
			conn := connection(t, db)
			locks := sqllock.OnConn(conn)
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
				if err := <-called; err != nil && !errors.Is(err, sqllock.ErrClosed) && !errors.Is(err, sqllock.ErrUnavailable) && !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("TryLock during Close: %v", err)
				}
			}
		}
	})
}

// A lock cannot be released while the owner's transaction has failed. It is
// released with the next call after that, or when a caller waits for it.
func TestConnInFailedTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		conn := connection(t, db)
		locks := sqllock.OnConn(conn)
		key := sqllock.ID(1)
		for _, waiting := range []bool{false, true} {
			lock := mustLock(t, locks, key)
			granted := make(chan error, 1)
			if waiting {
				time.Sleep(1100 * time.Millisecond) // too late to hand the key over in this process
				go func() {
					next, err := locks.Lock(context.Background(), key)
					_ = next.Unlock()
					granted <- err
				}()
				lockertest.Eventually(t, "a caller waits", func() bool { return sqllock.InLine(locks) == 1 })
			}
			tx, err := conn.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("SELECT 1/0"); err == nil {
				t.Fatal("no error to fail the transaction")
			}
			if err := lock.Unlock(); !errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("Unlock in a failed transaction: %v, want ErrUnavailable", err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if waiting {
				if err := <-granted; err != nil {
					t.Errorf("the caller that waited: %v", err)
				}
				continue
			}
			unlock(t, mustLock(t, locks, key))
		}
		lockertest.Eventually(t, "all locks are released", func() bool { return advisoryLocks(t, db) == 0 })
	})
}

// A holder is notified of the end of the connection although the owner is using
// it.
func TestConnLostInUse(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		conn := connection(t, db)
		locks := sqllock.OnConn(conn)
		lock := mustLock(t, locks, sqllock.ID(1))
		tx, err := conn.BeginTx(t.Context(), nil) // keeps the connection from being closed
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		number(t, db, terminateHolder)
		// database/sql may hold the failed call back until the transaction ends.
		failed := make(chan error, 1)
		go func() {
			_, err := locks.TryLock(t.Context(), sqllock.ID(2))
			failed <- err
		}()
		_, _ = tx.Exec("SELECT 1")
		_ = tx.Rollback()
		if err := <-failed; err == nil {
			t.Error("TryLock on a connection that is gone")
		}
		lockertest.Eventually(t, "the holder is notified", func() bool { return lock.Err() == sqllock.ErrLost })
	})
}
