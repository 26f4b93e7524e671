package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// exampleDatabase is a database for an Example, and what removes it.
func exampleDatabase() (db *sql.DB, done func()) {
	dsn, drop, err := pgtest.Temporary(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("pgx", dsn)
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = drop()
	}
}

// exampleSession is a Session on a database of its own.
func exampleSession() (locks *sqllock.Session, done func()) {
	db, drop := exampleDatabase()
	locks, err := sqllock.Open(context.Background(), db)
	if err != nil {
		log.Fatal(err)
	}
	return locks, func() {
		_ = locks.Close()
		drop()
	}
}

func Example() {
	ctx := context.Background()
	db, done := exampleDatabase() // any *sql.DB: sql.Open("pgx", dsn), sql.Open("postgres", dsn)
	defer done()
	db.SetMaxOpenConns(3) // a small pool of the Session's own

	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	key := sqllock.Namespace("export").Key("user-1")
	lock, err := locks.TryLock(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	_, err = locks.TryLock(ctx, key) // in this process or any other
	fmt.Println("second caller:", err)

	fmt.Println("unlock:", lock.Unlock())
	// Output:
	// second caller: sqllock: key is held
	// unlock: <nil>
}

func ExampleOpen() {
	db, done := exampleDatabase()
	defer done()
	db.SetMaxOpenConns(1)

	_, err := sqllock.Open(context.Background(), db)
	fmt.Println(errors.Is(err, sqllock.ErrNotExclusive))
	fmt.Println(err)
	// Output:
	// true
	// sqllock: locks do not exclude here: the pool may open one connection only (SetMaxOpenConns), and the proof that locks exclude needs two: allow two or more
}

// A service that is to start although the database is away, and wants the lease
// shorter than the default.
func ExampleOption() {
	db, err := sql.Open("pgx", "postgres://127.0.0.1:1/nothing-there")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	locks, err := sqllock.Open(context.Background(), db,
		sqllock.WithLazyOpen(),
		sqllock.WithLease(5*time.Second),
		sqllock.WithMaxHeld(500),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	_, err = locks.TryLock(context.Background(), sqllock.ID(1))
	fmt.Println(errors.Is(err, sqllock.ErrUnavailable))
	// Output: true
}

func ExampleSession_Lock() {
	locks, done := exampleSession()
	defer done()
	key := sqllock.Namespace("ledger").Key("account-7")
	first, err := locks.TryLock(context.Background(), key)
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = locks.Lock(ctx, key) // waits until ctx ends
	fmt.Println(errors.Is(err, context.DeadlineExceeded))

	go first.Unlock()
	second, err := locks.Lock(context.Background(), key)
	fmt.Println(err)
	_ = second.Unlock()
	// Output:
	// true
	// <nil>
}

// Two at a time instead of one: a slot for each.
func ExampleSession_TryAny() {
	locks, done := exampleSession()
	defer done()
	ns := sqllock.Namespace("render")
	slots := []sqllock.Key{ns.SlotKey("user-1", 0), ns.SlotKey("user-1", 1)}
	for range 3 {
		lock, err := locks.TryAny(context.Background(), slots...)
		fmt.Println(err)
		defer lock.Unlock() // safe on nil, too
	}
	// Output:
	// <nil>
	// <nil>
	// sqllock: key is held
}

func ExampleSession_LockAny() {
	locks := sqllock.NewMemory() // a Session has the same method
	a, b := sqllock.ID(1), sqllock.ID(2)
	held, _ := locks.TryLock(context.Background(), a)
	free, err := locks.LockAny(context.Background(), a, b)
	fmt.Println(free.Key() == b, err)
	_ = free.Unlock()
	_ = held.Unlock()
	// Output: true <nil>
}

func ExampleSession_Stats() {
	locks, done := exampleSession()
	defer done()
	lock, err := locks.TryLock(context.Background(), sqllock.ID(1))
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock()
	stats := locks.Stats()
	fmt.Println(stats.Held, "lock on", stats.Connections, "connection")
	// Output: 1 lock on 1 connection
}

func ExampleSession_Close() {
	locks, done := exampleSession()
	defer done()
	lock, err := locks.TryLock(context.Background(), sqllock.ID(1))
	if err != nil {
		log.Fatal(err)
	}
	work := lock.Context()
	_ = locks.Close()
	fmt.Println(context.Cause(work))
	// Output: sqllock: locker is closed
}

func ExampleDo() {
	locks := sqllock.NewMemory()
	key := sqllock.Namespace("report").Key("2026-11")
	err := sqllock.Do(context.Background(), locks, key, func(ctx context.Context) error {
		fmt.Println("working")
		return nil
	})
	fmt.Println(err)
	// Output:
	// working
	// <nil>
}

// Locks are not re-entrant: a function that takes a lock which its caller holds
// is refused, and one that waits for it waits for ever.
func ExampleDo_incorrect() {
	locks := sqllock.NewMemory()
	key := sqllock.ID(1)
	err := sqllock.Do(context.Background(), locks, key, func(ctx context.Context) error {
		return sqllock.Do(ctx, locks, key, func(context.Context) error { return nil })
	})
	fmt.Println(err)
	// Output: sqllock: key is held
}

func ExampleNamespace_Key() {
	export, payout := sqllock.Namespace("export"), sqllock.Namespace("payout")
	fmt.Println(export.Key("user-1") == payout.Key("user-1"))
	fmt.Println(export.Key("user-1").Int64()) // in psql: SELECT pg_try_advisory_lock(…)
	// Output:
	// false
	// -1637517681989069423
}

func ExampleNamespace_SlotKey() {
	ns := sqllock.Namespace("export")
	fmt.Println(ns.SlotKey("user-1", 0) == ns.Key("user-1"))
	fmt.Println(ns.SlotKey("user-1", 1) == ns.Key("user-1"))
	// Output:
	// true
	// false
}

// For ids that strangers choose: without the secret nobody can find one that
// collides with somebody else's.
func ExampleNamespace_Keyed() {
	hooks := sqllock.Namespace("webhook").Keyed([]byte("the fleet's secret"))
	fmt.Println(hooks.Key("evt_1") == sqllock.Namespace("webhook").Key("evt_1"))
	// Output: false
}

func ExampleID() {
	const migrations = 4711 // a number of one's own
	fmt.Println(sqllock.ID(migrations).Int64())
	// Output: 4711
}

func ExamplePair() {
	const invoices = 3 // a class of one's own, and a row's number in it
	fmt.Println(sqllock.Pair(invoices, 42) == sqllock.ID(sqllock.Pair(invoices, 42).Int64()))
	// Output: false
}

func ExampleLock_Err() {
	locks := sqllock.NewMemory()
	lock, _ := locks.TryLock(context.Background(), sqllock.ID(1))
	if err := lock.Err(); err == nil {
		fmt.Println("still ours: send the payment")
	}
	_ = lock.Unlock()
	fmt.Println(lock.Err())
	// Output:
	// still ours: send the payment
	// sqllock: lock was released
}

func ExampleLock_Context() {
	locks := sqllock.NewMemory()
	request, cancel := context.WithCancel(context.Background())
	lock, _ := locks.TryLock(request, sqllock.ID(1))
	work := lock.Context()
	cancel() // the client has gone; the work goes on
	fmt.Println(work.Err())
	_ = lock.Unlock()
	fmt.Println(context.Cause(work))
	// Output:
	// <nil>
	// sqllock: lock was released
}

func ExampleLock_Bind() {
	locks := sqllock.NewMemory()
	lock, _ := locks.TryLock(context.Background(), sqllock.ID(1))
	defer lock.Unlock()
	request, cancel := context.WithCancel(context.Background())
	ctx, unbind := lock.Bind(request) // ends with the request or with the lock's loss
	defer unbind()
	_, ok := sqllock.FromContext(ctx)
	cancel()
	fmt.Println(ok, ctx.Err())
	// Output: true context canceled
}

func ExampleLock_OnEnd() {
	locks := sqllock.NewMemory()
	lock, _ := locks.TryLock(context.Background(), sqllock.ID(1))
	taken := time.Now()
	lock.OnEnd(func(cause error) {
		_ = time.Since(taken) // for a histogram
		fmt.Println(cause)
	})
	_ = lock.Unlock()
	// Output: sqllock: lock was released
}

func ExampleLock_Cancel() {
	locks := sqllock.NewMemory()
	lock, _ := locks.TryLock(context.Background(), sqllock.ID(1))
	work := lock.Context()
	lock.Cancel(errors.New("the work took too long"))
	fmt.Println(context.Cause(work))
	fmt.Println(lock.Err()) // held until the work has really stopped
	_ = lock.Unlock()
	// Output:
	// the work took too long
	// <nil>
}

func ExampleFromContext() {
	locks := sqllock.NewMemory()
	_ = sqllock.Do(context.Background(), locks, sqllock.ID(1), func(ctx context.Context) error {
		lock, ok := sqllock.FromContext(ctx) // deep in a handler
		fmt.Println(ok, lock.Err())
		return nil
	})
	// Output: true <nil>
}

func ExampleNewMemory() {
	var locks sqllock.Locker = sqllock.NewMemory() // in a test, for a *Session
	lock, err := locks.TryLock(context.Background(), sqllock.ID(1))
	fmt.Println(err)
	_ = lock.Unlock()
	// Output: <nil>
}

func ExampleOnConn() {
	ctx := context.Background()
	db, done := exampleDatabase()
	defer done()
	conn, err := db.Conn(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	lock, err := sqllock.OnConn(conn).TryLock(ctx, sqllock.ID(1))
	fmt.Println(err)
	fmt.Println(lock.Unlock()) // before conn.Close
	// Output:
	// <nil>
	// <nil>
}

// A connection that is closed with a lock on it goes back to the pool with the
// lock: nobody else gets the key, and nobody knows why.
func ExampleOnConn_incorrect() {
	ctx := context.Background()
	db, done := exampleDatabase()
	defer done()
	conn, err := db.Conn(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := sqllock.OnConn(conn).TryLock(ctx, sqllock.ID(1)); err != nil {
		log.Fatal(err)
	}
	_ = conn.Close() // without Unlock

	busy, err := db.Conn(ctx) // the pool gives the same connection out again
	if err != nil {
		log.Fatal(err)
	}
	defer busy.Close()
	other, err := db.Conn(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	_, err = sqllock.OnConn(other).TryLock(ctx, sqllock.ID(1))
	fmt.Println(err)
	// Output: sqllock: key is held
}

func ExampleTryTx() {
	ctx := context.Background()
	db, done := exampleDatabase()
	defer done()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback() // ends the lock, as Commit does

	if err := sqllock.TryTx(ctx, tx, sqllock.Namespace("account").Key("7")); err != nil {
		log.Fatal(err) // ErrHeld: somebody else's transaction is at it
	}
	fmt.Println("locked until", "commit:", tx.Commit())
	// Output: locked until commit: <nil>
}

func ExampleLockTx() {
	ctx := context.Background()
	db, done := exampleDatabase()
	defer done()
	first, _ := db.BeginTx(ctx, nil)
	defer first.Rollback()
	second, _ := db.BeginTx(ctx, nil)
	defer second.Rollback()

	fmt.Println(sqllock.TryTx(ctx, first, sqllock.ID(1)))
	fmt.Println(sqllock.LockTx(ctx, second, sqllock.ID(1), 10*time.Millisecond))
	_, err := second.Exec("SELECT 1") // the transaction goes on
	fmt.Println(err)
	// Output:
	// <nil>
	// sqllock: key is held
	// <nil>
}

func ExamplePerTx() {
	ctx := context.Background()
	db, done := exampleDatabase() // through a transaction pooler, for instance
	defer done()
	locks := sqllock.PerTx(db)
	lock, err := locks.TryLock(ctx, sqllock.ID(1))
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock() // rolls back what is not committed

	tx, _ := sqllock.TxFromContext(lock.Context())
	if _, err := tx.Exec("CREATE TABLE done (id int)"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("work and lock end together:", tx.Commit())
	// Output: work and lock end together: <nil>
}

// With sqlx: the Session on the DB's pool, transaction locks on its Tx.
func ExampleTryTx_sqlx() {
	ctx := context.Background()
	pool, done := exampleDatabase()
	defer done()
	db := sqlx.NewDb(pool, "pgx") // what sqlx.Open("pgx", dsn) returns

	locks, err := sqllock.Open(ctx, db.DB)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lock, err := locks.TryLock(ctx, sqllock.ID(1))
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock()

	tx := db.MustBeginTx(ctx, nil)
	defer tx.Rollback()
	fmt.Println(sqllock.TryTx(ctx, tx, sqllock.ID(1))) // the Session holds it
	fmt.Println(sqllock.TryTx(ctx, tx, sqllock.ID(2)))
	// Output:
	// sqllock: key is held
	// <nil>
}
