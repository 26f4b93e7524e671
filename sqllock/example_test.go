package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// One caller holds a key. Every other caller is rejected, in this process and
// in all others.
func Example() {
	ctx := context.Background()
	db, done := exampleDatabase() // any *sql.DB: sql.Open("pgx", dsn), sql.Open("postgres", dsn)
	defer done()
	db.SetMaxOpenConns(3) // a small pool for the Session alone

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

// Open reports a wrong configuration, and what to change.
func ExampleOpen() {
	db, done := exampleDatabase()
	defer done()
	db.SetMaxOpenConns(1)

	_, err := sqllock.Open(context.Background(), db)
	fmt.Println(errors.Is(err, sqllock.ErrConfig))
	fmt.Println(err)
	// Output:
	// true
	// sqllock: configuration is wrong: the pool may open one connection only (SetMaxOpenConns), and the proof that locks exclude needs two: allow two or more
}

// A service that starts even if the database is away, and wants a shorter lease
// than the default.
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

// Lock waits until the key is free or ctx ends.
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

	go func() { _ = first.Unlock() }()
	second, err := locks.Lock(context.Background(), key)
	fmt.Println(err)
	_ = second.Unlock()
	// Output:
	// true
	// <nil>
}

// Two callers at a time instead of one: each has a slot.
func ExampleSession_TryAny() {
	locks, done := exampleSession()
	defer done()
	ns := sqllock.Namespace("render")
	slots := []sqllock.Key{ns.SlotKey("user-1", 0), ns.SlotKey("user-1", 1)}
	for range 3 {
		lock, err := locks.TryAny(context.Background(), slots...)
		fmt.Println(err)
		defer lock.Unlock() // does nothing on a nil Lock
	}
	// Output:
	// <nil>
	// <nil>
	// sqllock: key is held
}

// Two namespaces never share a key.
func ExampleNamespace_Key() {
	export, payout := sqllock.Namespace("export"), sqllock.Namespace("payout")
	fmt.Println(export.Key("user-1") == payout.Key("user-1"))
	fmt.Println(export.Key("user-1").Int64()) // in psql: SELECT pg_try_advisory_lock(…)
	// Output:
	// false
	// -1637517681989069423
}
