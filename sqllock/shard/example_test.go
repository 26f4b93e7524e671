package shard_test

import (
	"context"
	"fmt"
	"log"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/shard"
)

// Two databases share the locks of a fleet.
func ExampleNew() {
	ctx := context.Background()
	first, closeFirst := dbtest.ExampleSession()
	defer closeFirst()
	second, closeSecond := dbtest.ExampleSession()
	defer closeSecond()

	locks := shard.New(first, second) // the same databases, in the same order, in every process
	ns := sqllock.Namespace("export")
	for _, user := range []string{"user-1", "user-2", "user-3", "user-4"} {
		lock, err := locks.TryLock(ctx, ns.Key(user))
		if err != nil {
			log.Fatal(err)
		}
		defer lock.Unlock()
	}
	_, err := locks.TryLock(ctx, ns.Key("user-1"))
	fmt.Println(err)
	fmt.Println(first.Stats().Held + second.Stats().Held)
	// Output:
	// sqllock: key is held
	// 4
}

// The data of a key may be kept in the database of its lock.
func ExampleLocker_Index() {
	locks := shard.New(sqllock.NewMemory(), sqllock.NewMemory(), sqllock.NewMemory()) // in a service: Sessions
	databases := []string{"db-0", "db-1", "db-2"}                                     // a *sql.DB each
	key := sqllock.Namespace("ledger").Key("account-7")
	fmt.Println(databases[locks.Index(key)])
	// Output: db-2
}

// The slots of one id are spread over the databases. While one database is
// away, the others still admit.
func ExampleLocker_TryAny() {
	locks := shard.New(sqllock.NewMemory(), sqllock.NewMemory())
	ns := sqllock.Namespace("export")
	for range 3 {
		_, err := locks.TryAny(context.Background(), ns.SlotKey("user-1", 0), ns.SlotKey("user-1", 1))
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// sqllock: key is held
}
