package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A transaction's lock can be acquired on a transaction only: *sql.DB and
// *sql.Conn lack methods of Tx.
func TestTxIsATransaction(t *testing.T) {
	t.Parallel()
	for v, want := range map[any]bool{(*sql.Tx)(nil): true, (*sql.DB)(nil): false, (*sql.Conn)(nil): false} {
		if _, ok := v.(sqllock.Tx); ok != want {
			t.Errorf("%T passes for a transaction: %t", v, ok)
		}
	}
}

// Locks of transactions exclude those of every other kind, and readers of every
// kind share a key.
func TestTryTx(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db, ctx := open(t, driver, dsn), t.Context()
		s, conn := session(t, driver, dsn), sqllock.OnConn(connection(t, db))
		for _, key := range []sqllock.Key{sqllock.Namespace("tx").Key("user-1"), sqllock.ID(-1 << 63), sqllock.Pair(-1<<31, -1)} {
			holder, other := transaction(t, db), transaction(t, db)
			alone := map[string]func() error{
				"TryTx":              func() error { return sqllock.TryTx(ctx, other, key) },
				"LockTx":             func() error { return sqllock.LockTx(ctx, other, key, time.Microsecond) },
				"Session.TryLock":    func() error { l, err := s.TryLock(ctx, key); _ = l.Unlock(); return err },
				"ConnLocker.TryLock": func() error { l, err := conn.TryLock(ctx, key); _ = l.Unlock(); return err },
			}
			reading := map[string]func() error{
				"TryRTx":              func() error { return sqllock.TryRTx(ctx, other, key) },
				"RLockTx":             func() error { return sqllock.RLockTx(ctx, other, key, 5*time.Millisecond) },
				"Session.TryRLock":    func() error { l, err := s.TryRLock(ctx, key); _ = l.Unlock(); return err },
				"ConnLocker.TryRLock": func() error { l, err := conn.TryRLock(ctx, key); _ = l.Unlock(); return err },
			}
			expect := func(when string, calls map[string]func() error, want error) {
				t.Helper()
				for name, call := range calls {
					if err := call(); !errors.Is(err, want) {
						t.Errorf("%s %s: %v, want %v", name, when, err, want)
					}
				}
			}
			for range 2 { // the same transaction may acquire it again
				if err := sqllock.TryRTx(ctx, holder, key); err != nil {
					t.Fatalf("TryRTx: %v", err)
				}
			}
			expect("while a transaction reads", alone, sqllock.ErrHeld)
			expect("while a transaction reads", reading, nil)
			_ = other.Rollback()
			if other = transaction(t, db); sqllock.TryTx(ctx, holder, key) != nil {
				t.Error("TryTx of the only reader fails")
			}
			expect("while a transaction writes", alone, sqllock.ErrHeld)
			expect("while a transaction writes", reading, sqllock.ErrHeld)
			if err := holder.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(alone["Session.TryLock"](), alone["TryTx"](), other.Rollback()); err != nil {
				t.Errorf("after the commit: %v", err)
			}
			writer := mustLock(t, s, key)
			other = transaction(t, db)
			for name, call := range map[string]func() error{"TryTx": alone["TryTx"], "TryRTx": reading["TryRTx"], "RLockTx": reading["RLockTx"]} {
				if err := call(); err != sqllock.ErrHeld {
					t.Errorf("%s while a Session writes: %v, want ErrHeld", name, err)
				}
			}
			unlock(t, writer)
		}
	})
}

func TestTxErrors(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		done, failed := transaction(t, db), transaction(t, db)
		if err := done.Commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := failed.Exec("SELECT 1/0"); err == nil {
			t.Fatal("no error to fail the transaction")
		}
		for name, call := range map[string]func(tx *sql.Tx) error{
			"TryTx":  func(tx *sql.Tx) error { return sqllock.TryTx(t.Context(), tx, sqllock.ID(1)) },
			"LockTx": func(tx *sql.Tx) error { return sqllock.LockTx(t.Context(), tx, sqllock.ID(1), time.Second) },
		} {
			if err := call(done); !errors.Is(err, sql.ErrTxDone) || errors.Is(err, sqllock.ErrClosed) {
				t.Errorf("%s on a transaction that is done: %v, want sql.ErrTxDone without ErrClosed", name, err)
			}
			if err := call(failed); stateOf(err) != "25P02" || errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("%s on a failed transaction: %v, want SQLSTATE 25P02 without ErrUnavailable", name, err)
			}
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
		execute(t, waiter, "SET LOCAL lock_timeout = '1234ms'")
		execute(t, waiter, "CREATE TABLE kept (id int)")
		usable := func() { // with its settings and its work as before
			t.Helper()
			var timeout string
			if err := waiter.QueryRow("SHOW lock_timeout").Scan(&timeout); err != nil || timeout != "1234ms" {
				t.Fatalf("lock_timeout is %s, %v; want 1234ms as before", timeout, err)
			}
			execute(t, waiter, "INSERT INTO kept VALUES (1)")
		}
		// A fraction of a millisecond is rounded up, and does not mean for
		// ever. A wait of zero is a try.
		for _, wait := range []time.Duration{20 * time.Millisecond, time.Microsecond, 0, -1} {
			if err := sqllock.LockTx(ctx, waiter, key, wait); err != sqllock.ErrHeld {
				t.Fatalf("LockTx of a held key for %v: %v, want ErrHeld", wait, err)
			}
			usable()
		}
		got := make(chan error, 1)
		go func() { got <- sqllock.LockTx(ctx, waiter, key, math.MaxInt64) }() // longer than lock_timeout can be
		lockertest.Eventually(t, "the transaction waits", func() bool { return waitForLocks(t, db) == 1 })
		if err := errors.Join(holder.Commit(), <-got); err != nil {
			t.Fatalf("LockTx of a key that was released: %v", err)
		}
		usable()
		if n := advisoryLocks(t, db); n != 1 {
			t.Errorf("%d locks in the database, want 1", n)
		}
		if err := waiter.Commit(); err != nil || advisoryLocks(t, db) != 0 {
			t.Errorf("Commit: %v; %d locks remain", err, advisoryLocks(t, db))
		}
	})
}

// A countedTx counts statements.
type countedTx struct {
	*sql.Tx
	n int
}

func (tx *countedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tx.n++
	return tx.Tx.ExecContext(ctx, query, args...)
}

// LockTx begins a savepoint only if it waits.
func TestLockTxWithoutSavepoint(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", pgtest.Database(t))
	if err := sqllock.TryTx(t.Context(), transaction(t, db), sqllock.ID(1)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		key   sqllock.Key
		fails bool
		wait  time.Duration
		waits bool
	}{
		{sqllock.ID(2), false, time.Hour, false}, // free
		{sqllock.ID(2), true, time.Hour, false},
		{sqllock.ID(1), false, 0, false}, // held
		{sqllock.ID(1), false, time.Millisecond, true},
	} {
		tx := &countedTx{Tx: transaction(t, db)}
		if tt.fails {
			_, _ = tx.Tx.Exec("SELECT 1/0")
		}
		if err := sqllock.LockTx(t.Context(), tx, tt.key, tt.wait); tx.n > 1 != tt.waits {
			t.Errorf("%+v: %v, after %d statements", tt, err, tx.n)
		}
		_ = tx.Rollback()
	}
}

// PostgreSQL detects a deadlock between advisory locks.
func TestLockTxDeadlock(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		txs := []*sql.Tx{transaction(t, db), transaction(t, db)}
		for i, tx := range txs {
			if err := sqllock.TryTx(t.Context(), tx, sqllock.ID(int64(i))); err != nil {
				t.Fatal(err)
			}
		}
		results := make(chan error, 2)
		for i, tx := range txs {
			go func() {
				err := sqllock.LockTx(t.Context(), tx, sqllock.ID(int64(1-i)), time.Minute)
				_ = tx.Rollback()
				results <- err
			}()
		}
		victim, other := <-results, <-results
		if victim == nil { // the server has released its lock before it had the error
			victim, other = other, victim
		}
		if stateOf(victim) != "40P01" || other != nil {
			t.Errorf("the victim got %v, want SQLSTATE 40P01; the other one got %v", victim, other)
		}
	})
}

// An ownTx is a transaction of another type than *sql.Tx.
type ownTx struct{ *sql.Tx }

// perTxFunc returns a TxLocker whose transactions are of type ownTx.
func perTxFunc(db *sql.DB) *sqllock.TxLocker {
	return sqllock.PerTxFunc(func(ctx context.Context) (sqllock.Tx, error) {
		tx, err := db.BeginTx(ctx, nil)
		return ownTx{tx}, err
	})
}

// The commit of the transaction ends the lock and keeps the work. Unlock rolls
// back, and a waiting caller gets a transaction of its own.
func TestPerTxSharesItsTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		execute(t, db, "CREATE TABLE effects (what text)")
		for name, locker := range map[string]*sqllock.TxLocker{"PerTx": sqllock.PerTx(db), "PerTxFunc": perTxFunc(db)} {
			txOf := func(lock *sqllock.Lock) *sql.Tx {
				t.Helper()
				plain, isPlain := sqllock.TxFromContext(lock.Context())
				own, isOwn := sqllock.TxFrom[ownTx](lock.Context())
				switch {
				case name == "PerTx" && isPlain && !isOwn:
					return plain
				case name == "PerTxFunc" && isOwn && !isPlain:
					return own.Tx
				}
				t.Fatalf("%s: the lock's context has a *sql.Tx: %t; an ownTx: %t", name, isPlain, isOwn)
				return nil
			}
			first := mustLock(t, locker, sqllock.ID(1))
			waiter := make(chan *sqllock.Lock, 1)
			go func() {
				lock, err := locker.Lock(t.Context(), sqllock.ID(1))
				if err != nil {
					t.Errorf("%s: Lock: %v", name, err)
				}
				waiter <- lock
			}()
			lockertest.Eventually(t, "the second caller waits", func() bool { return sqllock.InLine(locker) == 1 })
			execute(t, txOf(first), "INSERT INTO effects VALUES ('given up')")
			unlock(t, first)
			second := <-waiter
			tx := txOf(second)
			execute(t, tx, "INSERT INTO effects VALUES ('of the second')")
			if err := tx.Commit(); err != nil || advisoryLocks(t, db) != 0 {
				t.Errorf("%s: Commit: %v; %d locks remain", name, err, advisoryLocks(t, db))
			}
			unlock(t, second)
			if n := number(t, db, "SELECT count(*) FROM effects"); n != 1 {
				t.Errorf("%s: %d effects, want the committed one", name, n)
			}
			execute(t, db, "DELETE FROM effects")
		}
		if _, ok := sqllock.TxFromContext(t.Context()); ok || db.Stats().InUse != 0 {
			t.Errorf("a context without a lock has a transaction: %t; %d connections are still in use", ok, db.Stats().InUse)
		}
	})
}

// The lease of a lock is a setting of its transaction alone. The connection
// returns to the pool with its old settings, however the transaction ends.
// Without a lease the transaction has them, too.
func TestPerTxLeavesSettingsAlone(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		db.SetMaxOpenConns(1)
		execute(t, db, "SET idle_in_transaction_session_timeout = '7min'")
		leased, plain := sqllock.PerTx(db, sqllock.WithLease(24*24*time.Hour)), sqllock.PerTx(db) // the longest lease
		timeout := func(on interface{ QueryRow(string, ...any) *sql.Row }) (text string) {
			t.Helper()
			if err := on.QueryRow("SHOW idle_in_transaction_session_timeout").Scan(&text); err != nil {
				t.Fatal(err)
			}
			return text
		}
		for _, tt := range []struct {
			locker *sqllock.TxLocker
			commit bool
			want   string
		}{{leased, true, "24d"}, {leased, false, "24d"}, {plain, false, "7min"}} {
			lock := mustLock(t, tt.locker, sqllock.ID(1))
			tx, _ := sqllock.TxFromContext(lock.Context())
			inside := timeout(tx)
			if tt.commit {
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
			}
			unlock(t, lock)
			if after := timeout(db); inside != tt.want || after != "7min" {
				t.Errorf("the timeout of the transaction is %q, and later %q; want %s and 7min", inside, after, tt.want)
			}
		}
	})
}

// A transaction that does not get the key needs no lease.
func TestPerTxLeasesWhatItHolds(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", pgtest.Database(t))
	var tx *countedTx
	locker := sqllock.PerTxFunc(func(ctx context.Context) (sqllock.Tx, error) {
		begun, err := db.BeginTx(ctx, nil)
		tx = &countedTx{Tx: begun}
		return tx, err
	}, sqllock.WithLease(time.Minute))
	lock := mustLock(t, sqllock.PerTx(db), sqllock.ID(1))
	if _, err := locker.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) || tx.n != 1 {
		t.Errorf("TryLock of a held key: %v, after %d statements, want 1", err, tx.n)
	}
	unlock(t, lock)
}

// The context of a transaction lives until the lock ends, and no longer.
func TestPerTxFuncContext(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", pgtest.Database(t))
	var life context.Context
	locks := sqllock.PerTxFunc(func(ctx context.Context) (sqllock.Tx, error) {
		life = ctx
		return db.BeginTx(ctx, nil)
	})
	call, cancel := context.WithCancel(t.Context())
	lock, err := locks.TryLock(call, sqllock.ID(1))
	if err != nil {
		t.Fatal(err)
	}
	if cancel(); life.Err() != nil {
		t.Error("the transaction's context ends with that of the call")
	}
	if unlock(t, lock); life.Err() == nil {
		t.Error("the transaction's context outlives the lock")
	}
}

// A TryLock without a transaction fails in time. What comes late is released.
func TestPerTxWithoutTransaction(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", pgtest.Database(t))
	db.SetMaxOpenConns(1)
	tx, stuck := transaction(t, db), make(chan struct{})
	for name, tt := range map[string]struct {
		locks *sqllock.TxLocker
		want  error
	}{
		"an error": {sqllock.PerTxFunc(func(context.Context) (sqllock.Tx, error) { return nil, driver.ErrBadConn }), sqllock.ErrUnavailable},
		"nothing":  {sqllock.PerTxFunc(func(context.Context) (sqllock.Tx, error) { return nil, nil }), sqllock.ErrConfig},
		"stuck": {sqllock.PerTxFunc(func(ctx context.Context) (sqllock.Tx, error) {
			<-stuck
			return db.BeginTx(ctx, nil)
		}, shortLease()), sqllock.ErrUnavailable},
		"no connection": {sqllock.PerTx(db, shortLease()), sqllock.ErrUnavailable},
	} {
		if _, err := tt.locks.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	close(stuck)
	_ = tx.Rollback()
	lockertest.Eventually(t, "the late grant is released", func() bool { return db.Stats().InUse == 0 && advisoryLocks(t, db) == 0 })
	unlock(t, mustLock(t, sqllock.PerTx(db), sqllock.ID(1)))
}
