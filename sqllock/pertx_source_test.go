package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A knownTx is a transaction of another type than *sql.Tx, which knows its
// server process.
type knownTx struct {
	*sql.Tx
	pid int64
}

func (tx knownTx) ServerPID() int64 { return tx.pid }

// perTxFunc returns a TxLocker whose transactions are of type knownTx.
func perTxFunc(db *sql.DB, opts ...sqllock.Option) *sqllock.TxLocker {
	return sqllock.PerTxFunc(func(ctx context.Context) (sqllock.Tx, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		known := knownTx{Tx: tx}
		if err := tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&known.pid); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		return known, nil
	}, opts...)
}

func TestTxFrom(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		lock := mustLock(t, perTxFunc(db), sqllock.ID(1))
		if _, ok := sqllock.TxFromContext(lock.Context()); ok {
			t.Error("TxFromContext returns a *sql.Tx that is none")
		}
		if _, ok := sqllock.TxFrom[knownTx](t.Context()); ok {
			t.Error("a context without a lock has a transaction")
		}
		tx, ok := sqllock.TxFrom[knownTx](lock.Context())
		if !ok {
			t.Fatal("TxFrom finds no transaction")
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if n := advisoryLocks(t, db); n != 0 {
			t.Errorf("%d locks after the commit, want none", n)
		}
		unlock(t, lock)

		of := mustLock(t, sqllock.PerTx(db), sqllock.ID(1))
		if tx, ok := sqllock.TxFrom[*sql.Tx](of.Context()); !ok || tx == nil {
			t.Error("TxFrom does not find a transaction of PerTx")
		}
		unlock(t, of)
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections are still in use", n)
		}
	})
}

// The context of a transaction lives until the lock ends, and no longer.
func TestPerTxFuncContext(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", pgtest.Database(t))
	var life context.Context
	locks := sqllock.PerTxFunc(func(ctx context.Context) (sqllock.Tx, error) {
		life = ctx
		return db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	})
	call, cancel := context.WithCancel(t.Context())
	lock, err := locks.TryLock(call, sqllock.ID(1))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if life.Err() != nil {
		t.Error("the transaction's context ends with that of the call")
	}
	tx, _ := sqllock.TxFromContext(lock.Context())
	var level string
	if err := tx.QueryRow("SHOW transaction_isolation").Scan(&level); err != nil || level != "serializable" {
		t.Errorf("the transaction is %q, %v; want serializable", level, err)
	}
	unlock(t, lock)
	if life.Err() == nil {
		t.Error("the transaction's context outlives the lock")
	}
}

func TestPerTxFuncFails(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", pgtest.Database(t))
	stuck := make(chan struct{})
	for name, tt := range map[string]struct {
		begin func(context.Context) (sqllock.Tx, error)
		want  error
		opts  []sqllock.Option
	}{
		"an error":       {func(context.Context) (sqllock.Tx, error) { return nil, driver.ErrBadConn }, sqllock.ErrUnavailable, nil},
		"no transaction": {func(context.Context) (sqllock.Tx, error) { return nil, nil }, sqllock.ErrConfig, nil},
		"stuck": {func(ctx context.Context) (sqllock.Tx, error) {
			<-stuck
			return db.BeginTx(ctx, nil)
		}, sqllock.ErrUnavailable, []sqllock.Option{shortLease()}},
	} {
		_, err := sqllock.PerTxFunc(tt.begin, tt.opts...).TryLock(t.Context(), sqllock.ID(1))
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	close(stuck)
	lockertest.Eventually(t, "the late grant is released", func() bool {
		return advisoryLocks(t, db) == 0 && db.Stats().InUse == 0
	})
	unlock(t, mustLock(t, sqllock.PerTx(db), sqllock.ID(1)))
}

// Each lock has a transaction of its own, which reads one state of the database
// from its first statement on.
func ExamplePerTxFunc() {
	ctx := context.Background()
	db, done := exampleDatabase()
	defer done()
	locks := sqllock.PerTxFunc(func(ctx context.Context) (sqllock.Tx, error) {
		return db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	})
	err := sqllock.Do(ctx, locks, sqllock.ID(1), func(ctx context.Context) error {
		tx, _ := sqllock.TxFrom[*sql.Tx](ctx)
		if _, err := tx.ExecContext(ctx, "CREATE TABLE done (id int)"); err != nil {
			return err
		}
		return tx.Commit()
	})
	fmt.Println(err)
	// Output: <nil>
}
