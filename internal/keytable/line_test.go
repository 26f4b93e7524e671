package keytable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A caller is a call of Acquire that is under way.
type caller struct {
	leave context.CancelFunc
	done  chan struct{}
	hold  *keytable.Hold
	err   error
}

// call calls Acquire for key 1, and lets it come as far as it can.
func call(t *testing.T, table *keytable.Table, w keytable.Want) *caller {
	ctx, cancel := context.WithCancel(t.Context())
	c := &caller{leave: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.hold, c.err = table.Acquire(ctx, w, keytable.ID{Number: 1})
	}()
	synctest.Wait()
	return c
}

// has reports whether the call has returned a hold by now.
func (c *caller) has() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return c.hold != nil
	default:
		return false
	}
}

// release gives the hold back.
func (c *caller) release(table *keytable.Table) {
	c.hold.End(keytable.Released)
	table.Release(nil, c.hold)
}

var (
	waits      = keytable.Want{Waits: true}
	reads      = keytable.Want{Mode: keytable.Shared}
	readsLater = keytable.Want{Mode: keytable.Shared, Waits: true}
)

// A reader that comes after a waiter for the exclusive lock does not overtake
// it. When that waiter leaves, the readers behind it join those that hold the
// key.
func TestReadersBehindAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := keytable.New(keytable.Config{Now: func() time.Duration { return 1 }, NewHold: newHold, HandOver: keytable.Forever})
		first := call(t, table, reads)
		writer, later := call(t, table, waits), call(t, table, readsLater)
		if tries := call(t, table, reads); !errors.Is(tries.err, keytable.ErrHeld) {
			t.Errorf("a reader that tries, behind a waiter: %v, want ErrHeld", tries.err)
		}
		if writer.has() || later.has() {
			t.Fatal("a reader holds the key, and a waiter or a reader behind it has it, too")
		}
		writer.leave()
		if !later.has() {
			t.Error("a reader is still in line when the waiter before it has left")
		}
		last := call(t, table, waits)
		for _, c := range []*caller{first, later} {
			if c.has() {
				c.release(table)
			}
		}
		if !last.has() {
			t.Error("the exclusive lock is not granted after the last reader")
		}
	})
}

// When the first in line leaves, the next one still gets a key that another
// process releases.
func TestWaiterBehindOneThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{holder: map[keytable.ID]any{{Number: 1}: "another process"}}
		p := newProcess(t, db, func() time.Duration { return time.Millisecond }, 10)
		ctx, cancel := context.WithCancel(t.Context())
		go p.run(ctx)
		first, second := call(t, p.table, waits), call(t, p.table, waits)
		time.Sleep(100 * time.Millisecond)
		first.leave()
		time.Sleep(100 * time.Millisecond)
		db.free(1)
		time.Sleep(time.Second)
		if !second.has() {
			t.Error("the second in line has no lock a second after the release")
		}
		cancel()
		synctest.Wait()
		second.leave()
	})
}

// A call that comes while a statement is under way is not denied by the response
// to that statement.
func TestDenialIsNotOlderThanTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{holder: map[keytable.ID]any{{Number: 1}: "another process"}}
		p := newProcess(t, db, func() time.Duration { return 10 * time.Millisecond }, 10)
		ctx, cancel := context.WithCancel(t.Context())
		go p.run(ctx)
		early := call(t, p.table, keytable.Want{})
		time.Sleep(15 * time.Millisecond) // the database has denied the key, and the response is on its way
		db.free(1)
		late := call(t, p.table, keytable.Want{})
		time.Sleep(time.Second)
		if early.has() || !late.has() {
			t.Errorf("before the release: %v; after it: %v, want a lock", early.err, late.err)
		}
		cancel()
		synctest.Wait()
	})
}

// free frees a key that another process holds.
func (db *database) free(number int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.holder, keytable.ID{Number: number})
}

// A lifeline of which a test says whether it has expired.
type lifeline struct{ over bool }

func (l *lifeline) Expired() bool { return l.over }
func (l *lifeline) Over() bool    { return l.over }
func (l *lifeline) LoseLease()    {}

// A key passes to the next in line without a statement only while its lease
// lasts.
func TestHandOver(t *testing.T) {
	for _, over := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcess(t, &database{holder: make(map[keytable.ID]any)}, func() time.Duration { return time.Millisecond }, 10)
			life := new(lifeline)
			p.owner.Life = life
			ctx, cancel := context.WithCancel(t.Context())
			go p.run(ctx)
			first := call(t, p.table, waits)
			time.Sleep(10 * time.Millisecond)
			if !first.has() {
				t.Fatal("a free key was not granted")
			}
			second, before := call(t, p.table, waits), p.batches
			life.over = over
			first.release(p.table)
			time.Sleep(500 * time.Millisecond)
			if !second.has() || p.batches > before != over {
				t.Errorf("the lease has passed: %v; the next in line has the key: %v, after %d statements", over, second.has(), p.batches-before)
			}
			cancel()
			synctest.Wait()
		})
	}
}
