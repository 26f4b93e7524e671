package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/latchkey-go/latchkey/sqllock"
)

// The work runs while the lock is held. Do releases the lock afterwards.
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

// Locks are not re-entrant. A function that tries to acquire a key that its
// caller holds is rejected. If it waits for that key, it waits for ever.
func ExampleDo_incorrect() {
	locks := sqllock.NewMemory()
	key := sqllock.ID(1)
	err := sqllock.Do(context.Background(), locks, key, func(ctx context.Context) error {
		return sqllock.Do(ctx, locks, key, func(context.Context) error { return nil })
	})
	fmt.Println(err)
	// Output: sqllock: key is held
}

// A transfer needs both accounts, and no other caller between them.
func ExampleDoAll() {
	locks := sqllock.NewMemory() // or a *Session
	account := sqllock.Namespace("account")
	from, to := account.Key("from"), account.Key("to")
	err := sqllock.DoAll(context.Background(), locks, []sqllock.Key{from, to}, func(ctx context.Context) error {
		_, err := locks.TryLock(ctx, to)
		fmt.Println("another caller:", err)
		_, ok := sqllock.FromContext(ctx, from)
		fmt.Println("the context carries the lock:", ok)
		return nil
	})
	fmt.Println(err)
	// Output:
	// another caller: sqllock: key is held
	// the context carries the lock: true
	// <nil>
}

// A function that needs the lock of a key may be called with it or without it.
func ExampleHeld() {
	locks := sqllock.NewMemory() // or a *Session
	key := sqllock.Namespace("report").Key("2026-11")
	var refresh func(ctx context.Context) error
	refresh = func(ctx context.Context) error {
		if !sqllock.Held(ctx, key) {
			fmt.Println("taking the lock")
			return sqllock.Do(ctx, locks, key, refresh)
		}
		fmt.Println("refreshing")
		return nil
	}
	fmt.Println(refresh(context.Background()))
	fmt.Println(sqllock.Do(context.Background(), locks, key, refresh)) // the caller has it already
	// Output:
	// taking the lock
	// refreshing
	// <nil>
	// refreshing
	// <nil>
}

// The life of a lock. Its context outlives the request that acquired it. Cancel
// asks the work to stop, and the lock stays held until Unlock. A hook learns why
// the lock ended.
func ExampleLock() {
	locks := sqllock.NewMemory()
	request, cancel := context.WithCancel(context.Background())
	lock, _ := locks.TryLock(request, sqllock.ID(1))
	lock.OnEnd(func(cause error) { fmt.Println("the hook:", cause) })
	work := lock.Context()
	cancel() // the client has gone; the work goes on
	fmt.Println(work.Err())
	lock.Cancel(errors.New("the work took too long"))
	fmt.Println(context.Cause(work))
	fmt.Println(lock.Err()) // held until the work has really stopped
	_ = lock.Unlock()
	fmt.Println(lock.Err())
	// Output:
	// <nil>
	// the work took too long
	// <nil>
	// the hook: sqllock: lock was released
	// sqllock: lock was released
}

// A bound context ends with the request or with the loss of the lock, whichever
// comes first.
func ExampleLock_Bind() {
	locks := sqllock.NewMemory()
	lock, _ := locks.TryLock(context.Background(), sqllock.ID(1))
	defer lock.Unlock()
	request, cancel := context.WithCancel(context.Background())
	ctx, unbind := lock.Bind(request) // for everything the request does
	defer unbind()
	_, ok := sqllock.FromContext(ctx)
	cancel()
	fmt.Println(ok, ctx.Err())
	// Output: true context canceled
}

// A test loses a lock on purpose, to see what the code under test does.
func ExampleMemory_Lose() {
	locks := sqllock.NewMemory() // replaces a *Session in the test
	lock, err := locks.TryLock(context.Background(), sqllock.Namespace("payout").Key("user-1"))
	if err != nil {
		log.Fatal(err)
	}
	work, cancel := lock.Bind(context.Background()) // as the middleware does for a handler
	defer cancel()

	fmt.Println(locks.Lose(), "lost")
	<-work.Done()
	fmt.Println(context.Cause(work))
	fmt.Println(lock.Unlock())
	// Output:
	// 1 lost
	// sqllock: lock was lost
	// sqllock: lock was lost
}
