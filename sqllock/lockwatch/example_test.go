package lockwatch_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
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

// Who holds the lock of a user? The number is enough to ask; the name, if it may be written at all, is in the
// registry only.
func ExampleInspect() {
	ctx := context.Background()
	db, done := exampleDatabase()
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
	// fmt.Print(seen) is a table of all.
	// Output:
	// 1 holder, 0 waiters; registry: missing
	// latchkey idle
}

// A caller who holds one key and waits for another, whose holder waits for the first.
func ExampleSnapshot_Cycles() {
	holds := func(session int, key int64) lockwatch.Holder {
		return lockwatch.Holder{Key: sqllock.ID(key), Process: lockwatch.Process{PID: session},
			Registration: &lockwatch.Registration{Session: int64(session)}}
	}
	waits := func(session int, holding, wanted int64) lockwatch.Waiter {
		return lockwatch.Waiter{Key: sqllock.ID(wanted),
			Poll: &lockwatch.Poll{Session: int64(session), Callers: 1, Holding: true, Held: sqllock.ID(holding)}}
	}
	seen := &lockwatch.Snapshot{ // as Inspect gives it
		Holders: []lockwatch.Holder{holds(101, 1), holds(102, 2)},
		Waiters: []lockwatch.Waiter{waits(101, 1, 2), waits(102, 2, 1)},
	}
	for _, c := range seen.Cycles() {
		fmt.Println(c)
	}
	// Output:
	// the holder of key 1 on process 101 waits for key 2 -> the holder of key 2 on process 102 waits for key 1
}

// One process of the fleet watches: the leader.
func ExampleWatch() {
	db, done := exampleDatabase()
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

	report := func(f lockwatch.Finding) { // page somebody
		fmt.Println(f.Kind)
		cancel() // the Example has seen enough
	}
	err = sqllock.NewCampaign(locks, sqllock.Namespace("leader").Key("watchdog")).Run(ctx, func(ctx context.Context) error {
		return lockwatch.Watch(ctx, db, report,
			lockwatch.WithInterval(10*time.Millisecond),
			lockwatch.WithLongHeld(50*time.Millisecond)) // the leader's own lock is held for longer
	})
	fmt.Println(err)
	// Output:
	// held for long
	// context canceled
}
