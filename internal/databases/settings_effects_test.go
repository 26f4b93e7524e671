package databases

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// eachStage runs test on a stage of its own for each driver, under settings of
// the role.
func eachStage(t *testing.T, test func(t *testing.T, s stage), settings ...string) {
	eachDriver(t, func(t *testing.T, driver string) {
		s := newStage(t, pgtest.Database(t))
		s.driver = driver
		for _, setting := range settings {
			s.set(t, "ALTER ROLE %r IN DATABASE %d SET "+setting)
		}
		test(t, s)
	})
}

// awaitEnd waits until the server has ended the role's sessions that are not
// those of locks.
func (s stage) awaitEnd(t *testing.T) {
	t.Helper()
	lockertest.Eventually(t, "the server ends the idle connections", func() bool {
		return number(t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE usename = '"+s.role+"' AND application_name NOT LIKE '%latchkey'") == 0
	})
}

// The server ends what is idle in a pool. A Session keeps its own connection,
// a lease table its locks, and the next call is served.
func TestLongIdleSessionTimeout(t *testing.T) {
	eachStage(t, func(t *testing.T, s stage) {
		advisory := session(t, s.pool(t), sqllock.WithLease(time.Minute))
		table := session(t, s.unprepared(t), sqllock.WithLeaseTable(), sqllock.WithLease(time.Minute))
		db := s.pool(t)
		perTx := sqllock.PerTx(db)
		for i := range 2 {
			locks := sqllock.Locks{mustLock(t, advisory, userKey("idle", i)), mustLock(t, table, userKey("idle", i))}
			if err := db.PingContext(t.Context()); err != nil && i == 0 {
				t.Fatal(err)
			}
			s.awaitEnd(t)
			if err := locks.Err(); err != nil {
				t.Errorf("a lock after its pool was idle: %v", err)
			}
			for _, l := range []sqllock.Locker{advisory, table} {
				if _, err := l.TryLock(t.Context(), userKey("idle", i)); !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("TryLock of a held key: %v, want ErrHeld", err)
				}
			}
			if err := locks.Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
			s.awaitEnd(t)
			if _, err := lockwatch.Inspect(t.Context(), db); err != nil {
				t.Errorf("Inspect: %v", err)
			}
			s.awaitEnd(t)
			lock, err := perTx.TryLock(t.Context(), userKey("idle tx", i))
			if err != nil {
				t.Errorf("PerTx: %v", err)
			}
			if err := lock.Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
			s.awaitEnd(t)
			if err := s.on(db).try(t, useIdempotency); err != nil {
				t.Errorf("idempotency: %v", err)
			}
		}
	}, "idle_session_timeout = '1s'")
}

// Timeouts of the role apply in the caller's own transactions. The error says
// which.
func TestTimeoutsInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ setting, says string }{
		{"statement_timeout = '1s'", "(statement_timeout)"},
		{"lock_timeout = '1s'", "(lock_timeout)"},
	} {
		t.Run(tt.setting[:9], func(t *testing.T) {
			eachStage(t, func(t *testing.T, s stage) {
				locks := session(t, open(t, s.driver, s.plain))
				lock := mustLock(t, locks, userKey("fence", 1))
				db := s.pool(t)
				for name, step := range map[string]func(tx sqllock.Tx) error{
					"Fence":   func(tx sqllock.Tx) error { return sqllock.Fence(t.Context(), tx, lock) },
					"Advance": func(tx sqllock.Tx) error { return watermark.Advance(t.Context(), tx, userKey("fence", 1), 1) },
				} {
					var first *sql.Tx
					lockertest.Eventually(t, name+" is in time", func() bool {
						first = mustBegin(t, db)
						err := step(first)
						if err != nil {
							_ = first.Rollback()
						}
						return err == nil
					})
					if err := step(mustBegin(t, db)); err == nil || !strings.Contains(err.Error(), tt.says) {
						t.Errorf("%s behind another transaction: %v, want an error with %q", name, err, tt.says)
					}
					_ = first.Rollback()
				}
			}, tt.setting)
		})
	}
}

// LockTx waits as long as it is told, whatever the lock_timeout of the role.
func TestLockTimeoutDoesNotShortenLockTx(t *testing.T) {
	eachStage(t, func(t *testing.T, s stage) {
		db := s.pool(t)
		holder, waiter := mustBegin(t, db), mustBegin(t, db)
		must(t, sqllock.TryTx(t.Context(), holder, userKey("tx", 1)))
		got := make(chan error, 1)
		go func() { got <- sqllock.LockTx(context.Background(), waiter, userKey("tx", 1), soon) }()
		lockertest.Eventually(t, "LockTx has waited for longer than lock_timeout", func() bool {
			return number(t, s.admin, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND waitstart < clock_timestamp() - interval '20 ms'") > 0
		})
		must(t, holder.Rollback())
		if err := <-got; err != nil {
			t.Errorf("LockTx: %v", err)
		}
	}, "lock_timeout = '5ms'")
}

// The server ends the transaction of a PerTx lock that is idle, as the role
// says. WithLease replaces that.
func TestIdleTransactionTimeout(t *testing.T) {
	eachStage(t, func(t *testing.T, s stage) {
		db := s.pool(t)
		short := awaitLock(t, sqllock.PerTx(db), userKey("pertx", 1))
		long := awaitLock(t, sqllock.PerTx(db, sqllock.WithLease(10*time.Minute)), userKey("pertx", 2))
		lockertest.Eventually(t, "the server ends one of the transactions", func() bool { return s.advisoryLocks(t) == 1 })
		if err := short.Unlock(); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock of a lock that the server has ended: %v, want ErrLost", err)
		}
		if err := long.Unlock(); err != nil {
			t.Errorf("Unlock of a lock with a lease: %v", err)
		}
	}, "idle_in_transaction_session_timeout = '2s'")
}

// With serializable transactions a statement of a lease table fails if it has
// waited for a key that another session takes meanwhile. It is tried again.
func TestLeaseTableUnderSerializable(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"serializable", "repeatable read"} {
		t.Run(level, func(t *testing.T) {
			eachStage(t, func(t *testing.T, s stage) {
				table := []sqllock.Option{sqllock.WithLeaseTable(), sqllock.WithLease(time.Hour)}
				holder, locks := session(t, s.unprepared(t), table...), session(t, s.unprepared(t), table...)
				mustLock(t, holder, sqllock.ID(1))
				tx := mustBegin(t, s.admin)
				_, err := tx.Exec("INSERT INTO latchkey_locks SELECT key_space, 2, session, acquired FROM latchkey_locks")
				must(t, err)
				tried := make(chan error, 1)
				go func() {
					_, err := locks.TryLock(t.Context(), sqllock.ID(2))
					tried <- err
				}()
				lockertest.Eventually(t, "the statement waits for the row", func() bool { return dbtest.WaitForLocks(t, s.admin) == 1 })
				must(t, tx.Commit())
				if err := <-tried; !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("TryLock: %v, want ErrHeld", err)
				}
			}, "default_transaction_isolation = '"+level+"'")
		})
	}
}
