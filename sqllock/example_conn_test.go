package sqllock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A lock on a connection that the caller has taken out of the pool. The caller
// releases the lock before it closes the connection.
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

// What goes wrong without Unlock: the connection returns to the pool with the
// lock on it. No other caller gets the key, and nothing shows why.
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

	busy, err := db.Conn(ctx) // the pool returns the same connection
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

// A lock that lasts as long as a transaction. Another transaction waits at most
// 10 milliseconds for the key, and goes on without it.
func ExampleLockTx() {
	ctx := context.Background()
	db, done := exampleDatabase()
	defer done()
	first, _ := db.BeginTx(ctx, nil)
	defer first.Rollback() // ends the lock, as Commit does
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

// Each lock has a transaction of its own. This works behind a pooler in
// transaction mode, and the work can share the transaction.
func ExamplePerTx() {
	ctx := context.Background()
	db, done := exampleDatabase()
	defer done()
	locks := sqllock.PerTx(db)
	lock, err := locks.TryLock(ctx, sqllock.ID(1))
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock() // rolls back work that is not committed

	tx, _ := sqllock.TxFromContext(lock.Context())
	if _, err := tx.Exec("CREATE TABLE done (id int)"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("work and lock end together:", tx.Commit())
	// Output: work and lock end together: <nil>
}
