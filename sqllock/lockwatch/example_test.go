package lockwatch_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// Which session holds the lock of a user? The key is enough to ask. Names are only
// in the registry, and only if a lock was given one.
func ExampleInspect() {
	ctx := context.Background()
	db, done := dbtest.ExampleDatabase()
	defer done()
	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	key := sqllock.Namespace("export").Key("user-1")
	if _, err := locks.TryLock(ctx, key); err != nil {
		log.Fatal(err)
	}

	seen, err := lockwatch.Inspect(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	holders, waiters := seen.Find(key)
	fmt.Println(len(holders), "holder,", len(waiters), "waiters; registry:", seen.Heartbeats)
	fmt.Println(holders[0].Process.Application, holders[0].Process.State)
	// fmt.Print(seen) prints all locks as tables.
	// Output:
	// 1 holder, 0 waiters; registry: missing
	// latchkey idle
}

// Two callers wait for each other: each holds the key that the other waits for.
func ExampleSnapshot_Cycles() {
	holds := func(session int, key int64) lockwatch.Holder {
		return lockwatch.Holder{Key: sqllock.ID(key), Process: lockwatch.Process{PID: session},
			Registration: &lockwatch.Registration{Session: int64(session)}}
	}
	waits := func(session int, held sqllock.Key, wanted int64) lockwatch.Waiter {
		return lockwatch.Waiter{Key: sqllock.ID(wanted),
			Poll: &lockwatch.Poll{Session: int64(session), Callers: 1, Held: &held}}
	}
	seen := &lockwatch.Snapshot{ // as Inspect gives it
		Holders: []lockwatch.Holder{holds(101, 1), holds(102, 2)},
		Waiters: []lockwatch.Waiter{waits(101, sqllock.ID(1), 2), waits(102, sqllock.ID(2), 1)},
	}
	for _, c := range seen.Cycles() {
		fmt.Println(c)
	}
	// Output:
	// the holder of key 1 on process 101 waits for key 2 -> the holder of key 2 on process 102 waits for key 1
}

// One process of the fleet watches: the leader of an election.
func ExampleWatch() {
	db, done := dbtest.ExampleDatabase()
	defer done()
	ctx, cancel := context.WithCancel(context.Background()) // of the process
	defer cancel()
	for _, statement := range lockwatch.Schema(sqllock.PostgreSQL) { // once, in a migration
		if _, err := db.ExecContext(ctx, statement); err != nil {
			log.Fatal(err)
		}
	}
	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	report := func(f lockwatch.Finding) { // call the operator
		fmt.Println(f.Kind)
		cancel() // the Example has seen enough
	}
	err = election.New(locks, sqllock.Namespace("leader").Key("watchdog")).Run(ctx, func(ctx context.Context) error {
		return lockwatch.Watch(ctx, db, report,
			lockwatch.WithInterval(10*time.Millisecond),
			lockwatch.WithLongHeld(50*time.Millisecond)) // the leader's own lock is held for longer
	})
	fmt.Println(err)
	// Output:
	// held for long
	// context canceled
}
