package sqllock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// Any number of callers may read a report at once. No caller rebuilds it
// meanwhile.
func ExampleSession_TryRLock() {
	db, remove := exampleDatabase()
	defer remove()
	locks, err := sqllock.Open(context.Background(), db)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	report := sqllock.Namespace("report").Key("2026-11")
	first, _ := locks.TryRLock(context.Background(), report)
	second, _ := locks.TryRLock(context.Background(), report)
	_, err = locks.TryLock(context.Background(), report)
	fmt.Println(err)
	_, _ = first.Unlock(), second.Unlock()
	rebuild, err := locks.TryLock(context.Background(), report)
	fmt.Println(err)
	_ = rebuild.Unlock()
	// Output:
	// sqllock: key is held
	// <nil>
}

// A reader that requests the key again waits for the writer, which waits for
// the reader: a deadlock.
func ExampleSession_RLock_incorrect() {
	locks := sqllock.NewMemory()
	ctx, cancel := context.WithCancel(context.Background())
	reader, _ := locks.TryRLock(ctx, sqllock.ID(1))
	writer := make(chan error)
	go func() {
		_, err := locks.Lock(ctx, sqllock.ID(1))
		writer <- err
	}()
	for {
		again, err := locks.TryRLock(ctx, sqllock.ID(1))
		if errors.Is(err, sqllock.ErrHeld) { // as soon as the writer waits
			fmt.Println(err)
			break
		}
		_ = again.Unlock()
	}
	cancel()
	fmt.Println(errors.Is(<-writer, context.Canceled))
	_ = reader.Unlock()
	// Output:
	// sqllock: key is held
	// true
}

// The registry shows people who holds which key. The database knows only the
// key's number. A name is there only if the program has set it.
func ExampleWithRegistry() {
	db, remove := exampleDatabase()
	defer remove()
	for _, statement := range lockwatch.Schema(sqllock.PostgreSQL) { // once, in a migration
		if _, err := db.Exec(statement); err != nil {
			fmt.Println(err)
			return
		}
	}
	locks, err := sqllock.Open(context.Background(), db, sqllock.WithRegistry(""))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	lock, err := locks.TryLock(context.Background(), sqllock.Namespace("invoice").Key("4711"))
	if err != nil {
		fmt.Println(err)
		return
	}
	lock.SetName("invoice 4711")
	// From the next heartbeat on, lockwatch.Inspect and the table
	// latchkey_heartbeats show the lock with its name.
	fmt.Println(lock.Unlock())
	// Output: <nil>
}
