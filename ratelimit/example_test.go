package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The examples use a sqllock.Memory, which works in one process only. A service
// uses a sqllock.Session on its database.

func ExampleOneAtATime() {
	ctx := context.Background()
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")

	lock, err := exports.Acquire(ctx, "user-1")
	fmt.Println("first: ", err)
	_, err = exports.Acquire(ctx, "user-1")
	fmt.Println("second:", err)
	other, err := exports.Acquire(ctx, "user-2")
	fmt.Println("other: ", err)
	_ = other.Unlock()

	_ = lock.Unlock()
	lock, err = exports.Acquire(ctx, "user-1")
	fmt.Println("third: ", err)
	_ = lock.Unlock()
	// Output:
	// first:  <nil>
	// second: ratelimit: export: key is busy
	// other:  <nil>
	// third:  <nil>
}

func ExampleAtMost() {
	ctx := context.Background()
	uploads := ratelimit.AtMost(2, sqllock.NewMemory(), "upload")
	for range 3 {
		lock, err := uploads.Acquire(ctx, "tenant-1")
		fmt.Println(err)
		defer lock.Unlock()
	}
	// Output:
	// <nil>
	// <nil>
	// ratelimit: upload: key is busy
}

// What a caller does with each error.
func ExampleLimiter_Acquire() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")

	export := func(ctx context.Context, userID string) string {
		lock, err := exports.Acquire(ctx, userID)
		switch {
		case errors.Is(err, ratelimit.ErrBusy):
			return "try again later"
		case errors.Is(err, ratelimit.ErrBadID):
			return "who are you?"
		case err != nil:
			return "not now" // the database is away, or the request has ended
		}
		defer lock.Unlock()

		ctx, cancel := lock.Bind(ctx) // ends with the request, or when the lock is lost
		defer cancel()
		return fmt.Sprint("exported, work told to stop: ", ctx.Err() != nil)
	}
	fmt.Println(export(context.Background(), "user-1"))
	fmt.Println(export(context.Background(), ""))
	// Output:
	// exported, work told to stop: false
	// who are you?
}

// A second Acquire is rejected even if the caller holds the lock: locks are not
// re-entrant.
func ExampleLimiter_Acquire_incorrect() {
	ctx := context.Background()
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	inner := func() error {
		lock, err := exports.Acquire(ctx, "user-1") // the caller has it
		defer lock.Unlock()
		return err
	}
	lock, _ := exports.Acquire(ctx, "user-1")
	defer lock.Unlock()
	fmt.Println(inner())
	// Output: ratelimit: export: key is busy
}

func ExampleLimiter_Limit() {
	uploads := ratelimit.AtMost(2, sqllock.NewMemory(), "upload")
	fmt.Println(uploads.Namespace(), uploads.Limit())
	// Output: upload 2
}

func ExampleBusyError() {
	ctx := context.Background()
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	lock, _ := exports.Acquire(ctx, "user-1")
	defer lock.Unlock()

	_, err := exports.Acquire(ctx, "user-1")
	var busy *ratelimit.BusyError
	if errors.As(err, &busy) {
		fmt.Println(busy.Namespace, busy.RetryAfter, errors.Is(err, ratelimit.ErrBusy))
	}
	// Output: export 1s true
}

func ExampleWithWait() {
	ctx := context.Background()
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithWait(time.Minute, 100))
	first, _ := exports.Acquire(ctx, "user-1")
	go func() {
		fmt.Println("first is done")
		_ = first.Unlock()
	}()
	second, err := exports.Acquire(ctx, "user-1")
	fmt.Println("second is in:", err)
	_ = second.Unlock()
	// Output:
	// first is done
	// second is in: <nil>
}

func ExampleWithRetryAfter() {
	ctx := context.Background()
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export",
		ratelimit.WithRetryAfter(func(learnt time.Duration) time.Duration { return max(learnt, 30*time.Second) }))
	lock, _ := exports.Acquire(ctx, "user-1")
	defer lock.Unlock()

	_, err := exports.Acquire(ctx, "user-1")
	var busy *ratelimit.BusyError
	if errors.As(err, &busy) {
		fmt.Println(busy.RetryAfter)
	}
	// Output: 30s
}

// A databaseAway is a Locker whose database is unavailable.
type databaseAway struct{ sqllock.Locker }

func (databaseAway) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) {
	return nil, sqllock.ErrUnavailable
}

func ExampleWithFailOpen() {
	exports := ratelimit.OneAtATime(databaseAway{}, "export", ratelimit.WithFailOpen(),
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) { fmt.Printf("%s: %v\n", e.Result, e.Err) }))
	lock, err := exports.Acquire(context.Background(), "user-1")
	defer lock.Unlock() // a nil lock is safe
	fmt.Println(err, lock == nil)
	fmt.Println(lock.Err()) // what must not happen without the lock can still be refused
	// Output:
	// failed_open: ratelimit: export: sqllock: database is unavailable
	// <nil> true
	// sqllock: database is unavailable
}

// Try a limit on live traffic before it rejects requests.
func ExampleWithDryRun() {
	ctx := context.Background()
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithDryRun(),
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
			if e.Result == ratelimit.DryRun {
				fmt.Println("would be rejected:", e.Err)
			}
		}))
	for range 2 {
		lock, err := exports.Acquire(ctx, "user-1")
		fmt.Println(err)
		defer lock.Unlock()
	}
	// Output:
	// <nil>
	// would be rejected: ratelimit: export: key is busy
	// <nil>
}

func ExampleWithMaxHold() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(time.Millisecond))
	lock, _ := exports.Acquire(context.Background(), "user-1")
	defer lock.Unlock()

	ctx, cancel := lock.Bind(context.Background())
	defer cancel()
	<-ctx.Done() // work that never ends by itself
	fmt.Println(context.Cause(ctx))
	fmt.Println("still held:", lock.Err() == nil)
	// Output:
	// ratelimit: work took longer than its lock may be held
	// still held: true
}

func ExampleWithObserver() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export",
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) { // a line of a log, say, or a span event
			fmt.Println(e.Namespace, e.Limit, e.Result, e.Held < time.Minute)
		}))
	ctx := context.Background()
	lock, _ := exports.Acquire(ctx, "user-1")
	_, _ = exports.Acquire(ctx, "user-1")
	_ = lock.Unlock()
	// Output:
	// export 1 admitted true
	// export 1 busy true
	// export 1 released true
}

// Figures for metrics need no Observer.
func ExampleLimiter_Stats() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	ctx := context.Background()
	lock, _ := exports.Acquire(ctx, "user-1")
	defer lock.Unlock()
	_, _ = exports.Acquire(ctx, "user-1")
	stats := exports.Stats()
	fmt.Println(stats.Requests[ratelimit.Admitted], stats.Requests[ratelimit.Busy], stats.Active, stats.AtLimit)
	// Output: 1 1 1 1
}

func ExampleWithMaxIDLen() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxIDLen(8))
	_, err := exports.Acquire(context.Background(), "longer than that")
	fmt.Println(err)
	// Output: ratelimit: bad id: it is longer than 8 bytes
}

// A secret is for ids that a client makes up, such as idempotency keys. Without
// it an attacker who computes billions of 64-bit hashes could find an id that
// blocks that of another user.
func ExampleWithKeySecret() {
	secret := []byte("from your secret store; the same in every instance")
	payments := ratelimit.OneAtATime(sqllock.NewMemory(), "payment", ratelimit.WithKeySecret(secret))
	lock, err := payments.Acquire(context.Background(), "idempotency-key-1")
	defer lock.Unlock()
	fmt.Println(err)
	// Output: <nil>
}
