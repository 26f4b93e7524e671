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

// Of a large group a process comes to use the keys that others leave alone. It
// tries a key that it has found held again only if it has no other. A key that it
// has had since is one of its own.
func TestKeysOfOthersAreLast(t *testing.T) {
	for name, acquire := range map[string]func(*keytable.Table, context.Context, keytable.Keys) (*keytable.Hold, error){
		"a look": func(table *keytable.Table, ctx context.Context, keys keytable.Keys) (*keytable.Hold, error) {
			return table.AcquireAny(ctx, keytable.Want{}, keys)
		},
		"a stack": func(table *keytable.Table, ctx context.Context, keys keytable.Keys) (*keytable.Hold, error) {
			holds, err := table.AcquireEach(ctx, keytable.Want{}, []keytable.Keys{keys})
			if err != nil {
				return nil, err
			}
			return holds[0], nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const all, theirs, requests = 400, 250, 1000
				db := &database{holder: make(map[keytable.ID]any)}
				p := newProcess(t, db, func() time.Duration { return 0 }, all)
				ctx, stop := context.WithCancel(t.Context())
				go p.run(ctx)
				defer stop()
				keys := keysOf(ids(0, 0, all))
				get := func() *keytable.Hold {
					t.Helper()
					h, err := acquire(p.table, ctx, keys)
					if err != nil {
						t.Fatal(err)
					}
					return h
				}
				giveBack := func(h *keytable.Hold) {
					t.Helper()
					h.End(keytable.Released)
					if err := p.table.Release(h); err != nil {
						t.Fatal(err)
					}
				}
				others := func(from, to int64) { // of the keys in another order
					synctest.Wait()
					for i := range int64(all) {
						if delete(db.holder, keytable.ID{Number: i}); from <= i*7%all && i*7%all < to {
							db.holder[keytable.ID{Number: i}] = "another process"
						}
					}
				}
				others(0, theirs)
				keep := get() // the group stays on the table
				defer func() { giveBack(keep) }()
				pairs := func() {
					t.Helper()
					p.batches, p.denied = 0, 0
					for range requests {
						giveBack(get())
					}
					if p.denied > all {
						t.Errorf("%d keys were found held in %d requests; each of %d at most once", p.denied, requests, all)
					}
				}
				pairs()
				delete(db.holder, keep.ID())
				others(0, 0)
				db.holder[keep.ID()] = p.owner
				var mine []*keytable.Hold
				for range all - 1 { // it has all of them
					mine = append(mine, get())
				}
				for _, h := range mine {
					giveBack(h)
				}
				others(theirs, all)
				db.holder[keep.ID()] = p.owner
				pairs()
			})
		})
	}
}

// Keys that are named as the same ones are not compared one by one.
func TestNamedKeysAreNotCompared(t *testing.T) {
	table := keytable.New(keytable.Config{NewHold: newHold, HandOver: keytable.Forever, Now: now})
	const n = 100
	compared := 0
	keys := keytable.Keys{N: n, At: func(i int) keytable.ID { compared++; return keytable.ID{Number: int64(i)} }}
	if _, err := table.AcquireAny(t.Context(), keytable.Want{}, keys); err != nil { // the group stays on the table
		t.Fatal(err)
	}
	keys.Of = &compared
	for _, most := range []int{n + 1, 1} {
		compared = 0
		if _, err := table.AcquireEach(t.Context(), keytable.Want{}, []keytable.Keys{keys}); err != nil || compared > most {
			t.Errorf("%d of %d keys were compared, %v; want at most %d", compared, n, err, most)
		}
	}
}

// The table keeps what it needs for a key for the next one, up to a bound.
func TestStatesAreUsedAgain(t *testing.T) {
	table := keytable.New(keytable.Config{NewHold: newHold, HandOver: keytable.Forever, Now: now})
	for range 2 {
		var holds []*keytable.Hold
		for i := range int64(keytable.MaxSpare + 1) {
			h, err := table.AcquireAny(t.Context(), keytable.Want{}, keysOf([]keytable.ID{{Number: i}}))
			if err != nil {
				t.Fatal(err)
			}
			holds = append(holds, h)
		}
		if n := keytable.Spare(table); n != 0 {
			t.Errorf("%d are not used", n)
		}
		for _, h := range holds {
			h.End(keytable.Released)
			table.Release(h)
		}
		if n := keytable.Spare(table); n != keytable.MaxSpare {
			t.Errorf("%d are kept, want %d", n, keytable.MaxSpare)
		}
	}
}
