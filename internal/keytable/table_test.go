package keytable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// still returns a process whose batches a test sends one by one.
func still(t *testing.T) (p *process, b *keytable.Batch) {
	return newProcess(t, &database{holder: make(map[keytable.ID]any)}, nil, 100), new(keytable.Batch)
}

// limits are those of a source with room.
var limits = keytable.Limits{Keys: 100, Grants: 100, Most: 100}

// acquire begins to acquire key number n. The channel gets the result.
func acquire(t *testing.T, p *process, w keytable.Want, n int) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := p.table.Acquire(t.Context(), w, ids(0, n, 1)[0])
		done <- err
	}()
	synctest.Wait()
	return done
}

// mustHold acquires key number n.
func mustHold(t *testing.T, p *process, b *keytable.Batch, n int) (h *keytable.Hold) {
	t.Helper()
	go func() { h, _ = p.table.Acquire(t.Context(), keytable.Want{}, ids(0, n, 1)[0]) }()
	synctest.Wait()
	p.send(b)
	synctest.Wait()
	if h == nil {
		t.Fatal("a free key is not granted")
	}
	return h
}

// send sends what is queued.
func (p *process) send(b *keytable.Batch) {
	if p.table.Prepare(p.owner, limits, b) {
		p.db.carryOut(p.t, p.owner, b)
		p.table.Complete(p.owner, b, now())
	}
}

// Where the source has no readers, they get its error, and others are served.
func TestNoShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := still(t)
		none := errors.New("no readers")
		tries := acquire(t, p, keytable.Want{Mode: keytable.Shared}, 1)
		waits := acquire(t, p, keytable.Want{Mode: keytable.Shared, Waits: true}, 1)
		alone := acquire(t, p, keytable.Want{Waits: true}, 1)
		without := limits
		without.NoShared = none
		if p.table.Prepare(p.owner, without, b) {
			t.Error("readers are sent")
		}
		if err := <-tries; err != none {
			t.Errorf("a reader that tries: %v", err)
		}
		if err := <-waits; err != none {
			t.Errorf("a reader that waits: %v", err)
		}
		p.send(b)
		if err := <-alone; err != nil {
			t.Errorf("the exclusive lock: %v", err)
		}
	})
}

// A hold that is lost after its caller has ended it and before it gives the key
// back: the release reports the loss.
func TestReleaseOfALostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := still(t)
		h := mustHold(t, p, b, 1)
		h.End(keytable.Released)
		if ends := p.table.Lose(p.owner, b, errors.New("gone")); len(ends) != 0 {
			t.Errorf("%d holds are told of the loss", len(ends))
		}
		if errs := p.table.Release(nil, h); errs[0] != keytable.ErrLost {
			t.Errorf("Release: %v, want ErrLost", errs[0])
		}
	})
}

// A group and a single key of it may be wanted in one batch. The key is tried once.
func TestKeyInTwoLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := still(t)
		several := ids(0, 0, 3)
		one := make(chan error, 1)
		go func() {
			_, err := p.table.AcquireAny(t.Context(), keytable.Want{}, keysOf(several))
			one <- err
		}()
		synctest.Wait()
		first := acquire(t, p, keytable.Want{}, 0)
		p.send(b) // panics, or reports it, if a key is tried twice
		p.send(b)
		if err := <-one; err != nil {
			t.Errorf("one of several: %v", err)
		}
		if err := <-first; err != keytable.ErrHeld {
			t.Errorf("the key that it got: %v, want ErrHeld", err)
		}
	})
}

// EachWait reports each key of each request that waits and has an Info, also of
// groups.
func TestEachWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := still(t)
		ctx, cancel := context.WithCancel(t.Context())
		acquire(t, p, keytable.Want{Waits: true}, 7)            // without an Info
		acquire(t, p, keytable.Want{Waits: true, Info: "a"}, 0) //
		for _, n := range []int{2, 3} {                         // two groups with the same first key
			keys := ids(0, 0, n)
			go func() {
				_, _ = p.table.AcquireAny(ctx, keytable.Want{Waits: true, Info: n}, keysOf(keys[:n]))
			}()
		}
		synctest.Wait()
		got := make(map[any]int)
		count := func() {
			clear(got)
			p.table.EachWait(func(_ keytable.ID, info any) { got[info]++ })
		}
		if count(); len(got) != 3 || got["a"] != 1 || got[2] != 2 || got[3] != 3 {
			t.Errorf("keys by request: %v", got)
		}
		cancel()
		synctest.Wait()
		if count(); len(got) != 1 {
			t.Errorf("after two have left: %v", got)
		}
		p.table.Close(keytable.ErrClosed)
	})
}
