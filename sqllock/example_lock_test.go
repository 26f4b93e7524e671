package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

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

// A test of code that holds a lock loses it on purpose.
func ExampleMemory_Lose() {
	locks := sqllock.NewMemory() // in the test, for a *Session
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
