package keytable_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// newTable returns a table whose source never answers.
func newTable() *keytable.Table {
	return keytable.New(keytable.Config{Wake: func() {}, NewHold: newHold, HandOver: time.Second, YieldFor: time.Second, Now: now})
}

// Calls that have left while the database is away leave nothing on the table,
// whether they came before or not. Those that have not left end with Close.
func TestNothingIsLeftOfCallsWhileAway(t *testing.T) {
	for _, cameBefore := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			table, away, closed := newTable(), errors.New("away"), errors.New("closed")
			if !cameBefore {
				table.SetAway(away)
			}
			ctx, leave := context.WithCancel(t.Context())
			var leaving, staying sync.WaitGroup
			begin := func(ctx context.Context, calls *sync.WaitGroup, i int, want error) {
				waits := keytable.Want{Waits: true}
				for _, acquire := range []func() error{
					func() error { _, err := table.Acquire(ctx, waits, keytable.ID{Number: int64(3 * i)}); return err },
					func() error {
						_, err := table.AcquireEach(ctx, waits, []keytable.Keys{keysOf(ids(0, 3*i+1, 1)), keysOf(ids(0, 3*i+2, 1))})
						return err
					},
				} {
					calls.Go(func() {
						if err := acquire(); !errors.Is(err, want) {
							t.Errorf("a call ended with %v, want %v", err, want)
						}
					})
				}
			}
			for i := range 100 {
				begin(ctx, &leaving, i, context.Canceled)
			}
			synctest.Wait()
			table.SetAway(away)
			table.Poll()
			leave()
			leaving.Wait()
			if n := keytable.Len(table); n != 0 || table.Figures().Queued {
				t.Errorf("%d states, groups and requests are left; queued: %v", n, table.Figures().Queued)
			}
			begin(t.Context(), &staying, 0, closed)
			synctest.Wait()
			table.Close(closed)
			staying.Wait()
		})
	}
}

// A call does not inherit the age of one that has left.
func TestCallExpiresByItsOwnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, late := newTable(), errors.New("late")
		ctx, leave := context.WithCancel(t.Context())
		try := func(ctx context.Context, id int64) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := table.Acquire(ctx, keytable.Want{}, keytable.ID{Number: id})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		first := try(ctx, 1)
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the first call: %v", err)
		}
		time.Sleep(time.Second)
		second := try(t.Context(), 2)
		expire := func() {
			table.Expire(now()-time.Second, func() error { return late })
			synctest.Wait()
		}
		time.Sleep(time.Second / 2)
		expire()
		if len(second) != 0 {
			t.Fatalf("the second call, after half its time: %v", <-second)
		}
		time.Sleep(time.Second / 2)
		expire()
		if err := <-second; !errors.Is(err, late) {
			t.Errorf("the second call, after its time: %v", err)
		}
	})
}
