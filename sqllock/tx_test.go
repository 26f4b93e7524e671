package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A transaction's lock can be acquired on a transaction only: *sql.DB and
// *sql.Conn lack methods of Tx.
var _ sqllock.Tx = (*sql.Tx)(nil)

func TestTxIsATransaction(t *testing.T) {
	t.Parallel()
	for _, v := range []any{(*sql.DB)(nil), (*sql.Conn)(nil)} {
		if _, ok := v.(sqllock.Tx); ok {
			t.Errorf("%T passes for a transaction", v)
		}
	}
}

func TestTryTx(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		s := session(t, driver, dsn)
		for name, key := range map[string]sqllock.Key{
			"name":          sqllock.Namespace("tx").Key("user-1"),
			"negative":      sqllock.ID(-7),
			"smallest":      sqllock.ID(-1 << 63),
			"pair":          sqllock.Pair(-1, -1),
			"smallest pair": sqllock.Pair(-1<<31, -1<<31),
		} {
			a, b := transaction(t, db), transaction(t, db)
			if err := sqllock.TryTx(t.Context(), a, key); err != nil {
				t.Fatalf("%s: TryTx: %v", name, err)
			}
			if err := sqllock.TryTx(t.Context(), a, key); err != nil {
				t.Errorf("%s: TryTx again in the same transaction: %v", name, err)
			}
			if err := sqllock.TryTx(t.Context(), b, key); err != sqllock.ErrHeld {
				t.Errorf("%s: TryTx in another transaction: %v, want ErrHeld", name, err)
			}
			if _, err := s.TryLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("%s: TryLock of a Session: %v, want ErrHeld", name, err)
			}
			if err := a.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := sqllock.TryTx(t.Context(), b, key); err != nil {
				t.Errorf("%s: TryTx after commit: %v", name, err)
			}
			if err := b.Rollback(); err != nil {
				t.Fatal(err)
			}
			unlock(t, mustLock(t, s, key))
		}
	})
}

func TestTxErrors(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		tx := transaction(t, db)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func() error{
			"TryTx":  func() error { return sqllock.TryTx(t.Context(), tx, sqllock.ID(1)) },
			"LockTx": func() error { return sqllock.LockTx(t.Context(), tx, sqllock.ID(1), time.Second) },
		} {
			if err := call(); !errors.Is(err, sql.ErrTxDone) || !strings.Contains(err.Error(), "committed or rolled back already") {
				t.Errorf("%s on a transaction that is done: %v, want sql.ErrTxDone", name, err)
			}
		}
		failed := transaction(t, db)
		if _, err := failed.Exec("SELECT 1/0"); err == nil {
			t.Fatal("no error to fail the transaction")
		}
		err := sqllock.TryTx(t.Context(), failed, sqllock.ID(1))
		if stateOf(err) != "25P02" {
			t.Errorf("TryTx on a failed transaction: %v, want SQLSTATE 25P02", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := sqllock.TryTx(ctx, transaction(t, db), sqllock.ID(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("TryTx with an ended context: %v, want context.Canceled", err)
		}
	})
}

func TestLockTx(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		ctx := t.Context()
		key := sqllock.ID(1)
		holder, waiter := transaction(t, db), transaction(t, db)
		if err := sqllock.LockTx(ctx, holder, key, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := waiter.Exec("SET LOCAL lock_timeout = '1234ms'; CREATE TABLE kept (id int)"); err != nil {
			t.Fatal(err)
		}
		// A fraction of a millisecond is rounded up, and does not mean for
		// ever. A wait of zero is a try.
		for _, wait := range []time.Duration{20 * time.Millisecond, time.Microsecond, 0, -1} {
			if err := sqllock.LockTx(ctx, waiter, key, wait); err != sqllock.ErrHeld {
				t.Fatalf("LockTx of a held key for %v: %v, want ErrHeld", wait, err)
			}
			usable(t, waiter)
		}
		got := make(chan error, 1)
		go func() { got <- sqllock.LockTx(ctx, waiter, key, math.MaxInt64) }() // longer than lock_timeout can be
		lockertest.Eventually(t, "the transaction waits", func() bool {
			return waitForLocks(t, db) == 1
		})
		if err := holder.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatalf("LockTx of a key that was released: %v", err)
		}
		usable(t, waiter)
		if n := advisoryLocks(t, db); n != 1 {
			t.Errorf("%d locks in the database, want 1", n)
		}
		if err := waiter.Commit(); err != nil {
			t.Errorf("Commit: %v", err)
		}
		if n := advisoryLocks(t, db); n != 0 {
			t.Errorf("%d locks remain after commit", n)
		}
	})
}

// usable checks that tx can be used, with its settings and its work as before.
func usable(t *testing.T, tx *sql.Tx) {
	t.Helper()
	var timeout string
	if err := tx.QueryRow("SHOW lock_timeout").Scan(&timeout); err != nil {
		t.Fatalf("the transaction cannot be used: %v", err)
	}
	if timeout != "1234ms" {
		t.Errorf("lock_timeout is %s, want 1234ms as before", timeout)
	}
	if _, err := tx.Exec("INSERT INTO kept VALUES (1)"); err != nil {
		t.Errorf("the transaction's work is gone: %v", err)
	}
}

// PostgreSQL detects a deadlock between advisory locks.
func TestLockTxDeadlock(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		ctx := t.Context()
		a, b := transaction(t, db), transaction(t, db)
		for tx, key := range map[*sql.Tx]sqllock.Key{a: sqllock.ID(1), b: sqllock.ID(2)} {
			if err := sqllock.TryTx(ctx, tx, key); err != nil {
				t.Fatal(err)
			}
		}
		type result struct {
			tx  *sql.Tx
			err error
		}
		results := make(chan result, 2)
		for tx, key := range map[*sql.Tx]sqllock.Key{a: sqllock.ID(2), b: sqllock.ID(1)} {
			go func() { results <- result{tx, sqllock.LockTx(ctx, tx, key, time.Minute)} }()
		}
		victim := <-results
		if stateOf(victim.err) != "40P01" {
			t.Errorf("the victim got %v, want SQLSTATE 40P01", victim.err)
		}
		_ = victim.tx.Rollback()
		if other := <-results; other.err != nil {
			t.Errorf("the other one got %v", other.err)
		}
	})
}

func TestPerTxSharesItsTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		execute(t, db, "CREATE TABLE effects (what text)")
		locker := sqllock.PerTx(db)
		for _, commit := range []bool{true, false} {
			lock := mustLock(t, locker, sqllock.ID(1))
			tx, ok := sqllock.TxFromContext(lock.Context())
			if !ok {
				t.Fatal("the lock's context has no transaction")
			}
			if _, err := tx.Exec("INSERT INTO effects VALUES ('of the holder')"); err != nil {
				t.Fatal(err)
			}
			if commit {
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				if n := advisoryLocks(t, db); n != 0 {
					t.Errorf("%d locks after the transaction was committed: committing ends the lock", n)
				}
			}
			unlock(t, lock)
		}
		if n := number(t, db, "SELECT count(*) FROM effects"); n != 1 {
			t.Errorf("%d effects, want the committed one", n)
		}
		if _, ok := sqllock.TxFromContext(t.Context()); ok {
			t.Error("a context without a lock has a transaction")
		}
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
	})
}

func TestPerTxLoss(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		lock := mustLock(t, sqllock.PerTx(db), sqllock.ID(1))
		number(t, db, terminateHolder)
		lockertest.Eventually(t, "the server has freed the lock", func() bool { return advisoryLocks(t, db) == 0 })
		if err := lock.Unlock(); err != sqllock.ErrLost {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		unlock(t, mustLock(t, sqllock.PerTx(db), sqllock.ID(1)))
	})
}

// A waiting caller gets a transaction of its own. It never gets the last
// holder's transaction, with the work of that holder.
func TestPerTxWaiterGetsItsOwnTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		execute(t, db, "CREATE TABLE effects (what text)")
		locker := sqllock.PerTx(db)
		first := mustLock(t, locker, sqllock.ID(1))
		type result struct {
			lock *sqllock.Lock
			err  error
		}
		waiter := make(chan result, 1)
		go func() {
			lock, err := locker.Lock(t.Context(), sqllock.ID(1))
			waiter <- result{lock, err}
		}()
		lockertest.Eventually(t, "the second caller waits", func() bool { return sqllock.InLine(locker) == 1 })
		tx, _ := sqllock.TxFromContext(first.Context())
		if _, err := tx.Exec("INSERT INTO effects VALUES ('given up')"); err != nil {
			t.Fatal(err)
		}
		if err := first.Unlock(); err != nil { // rolls back
			t.Fatal(err)
		}
		second := <-waiter
		if second.err != nil {
			t.Fatal(second.err)
		}
		tx, _ = sqllock.TxFromContext(second.lock.Context())
		if err := errors.Join(tx.Commit(), second.lock.Unlock()); err != nil {
			t.Errorf("the waiting caller's transaction: %v", err)
		}
		if n := number(t, db, "SELECT count(*) FROM effects"); n != 0 {
			t.Errorf("%d effects of the first caller, which has committed nothing", n)
		}
	})
}

// The lease of a lock is a setting of its transaction alone. The connection
// returns to the pool with its old settings, however the transaction ends.
func TestPerTxLeavesSettingsAlone(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		db.SetMaxOpenConns(1)
		locker := sqllock.PerTx(db, sqllock.WithLease(time.Minute))
		for name, commit := range map[string]bool{"committed": true, "rolled back": false} {
			lock := mustLock(t, locker, sqllock.ID(1))
			tx, _ := sqllock.TxFromContext(lock.Context())
			var timeout string
			if err := tx.QueryRow("SHOW idle_in_transaction_session_timeout").Scan(&timeout); err != nil || timeout != "1min" {
				t.Errorf("%s: the timeout of the transaction is %q, %v; want 1min", name, timeout, err)
			}
			if commit {
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
			}
			unlock(t, lock)
			if err := db.QueryRow("SHOW idle_in_transaction_session_timeout").Scan(&timeout); err != nil || timeout != "0" {
				t.Errorf("%s: the timeout of the pooled connection is %q, %v; want 0", name, timeout, err)
			}
		}
	})
}

// A pool without a free connection makes TryLock fail.
func TestPerTxPoolExhausted(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		db.SetMaxOpenConns(1)
		lock := mustLock(t, sqllock.PerTx(db), sqllock.ID(1))
		if _, err := sqllock.PerTx(db, shortLease()).TryLock(t.Context(), sqllock.ID(2)); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("TryLock without a connection: %v, want ErrUnavailable", err)
		}
		unlock(t, lock)
		lockertest.Eventually(t, "the late grant is released", func() bool { return db.Stats().InUse == 0 })
	})
}
