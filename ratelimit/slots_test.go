package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/shard"
)

func TestAtMost(t *testing.T) {
	t.Parallel()
	for name, locks := range map[string]sqllock.Locker{
		"any":     sqllock.NewMemory(),
		"one key": onlyOne{sqllock.NewMemory()},
		"sharded": shard.New(sqllock.NewMemory(), sqllock.NewMemory()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := ratelimit.AtMost(3, locks, "export")
			held := []*sqllock.Lock{must(t, l, "ada"), must(t, l, "ada"), must(t, l, "ada")}
			if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
				t.Errorf("fourth: %v, want ErrBusy", err)
			}
			must(t, l, "grace")

			unlock(t, held[1])
			again := must(t, l, "ada")
			if got, want := again.Key(), held[1].Key(); got != want {
				t.Errorf("slot %v, want the one given back, %v", got, want)
			}
		})
	}
}

// While a fleet changes from one at a time to two, the old holder has a slot.
// On the way back, old instances admit no request next to it.
func TestLimitRaised(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	before, after := ratelimit.OneAtATime(locks, "export"), ratelimit.AtMost(2, locks, "export")

	old := must(t, before, "ada")
	must(t, after, "ada")
	if _, err := after.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("third: %v, want ErrBusy", err)
	}
	unlock(t, old)
	must(t, after, "ada") // slot 0
	if _, err := before.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("old instance: %v, want ErrBusy", err)
	}
}

// A Locker that acquires one key at a time gets the slots in order, up to the
// first that is free or fails otherwise.
func TestSlotsInOrder(t *testing.T) {
	t.Parallel()
	const ns = sqllock.Namespace("export")
	slots := []sqllock.Key{ns.SlotKey("ada", 0), ns.SlotKey("ada", 1), ns.SlotKey("ada", 2)}
	tests := []struct {
		name    string
		answers []error
		asked   int
		want    error
	}{
		{"all held", []error{sqllock.ErrHeld, sqllock.ErrHeld, sqllock.ErrHeld}, 3, ratelimit.ErrBusy},
		{"first away", []error{sqllock.ErrUnavailable}, 1, sqllock.ErrUnavailable},
		{"second away", []error{sqllock.ErrHeld, sqllock.ErrUnavailable}, 2, sqllock.ErrUnavailable},
		{"second free", []error{sqllock.ErrHeld, nil}, 2, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			memory := sqllock.NewMemory()
			var asked []sqllock.Key
			locks := fakeLocker{tryLock: func(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
				asked = append(asked, key)
				if err := tt.answers[len(asked)-1]; err != nil {
					return nil, err
				}
				return memory.TryLock(ctx, key)
			}}
			lock, err := ratelimit.AtMost(3, locks, ns).Acquire(t.Context(), "ada")
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if !slices.Equal(asked, slots[:tt.asked]) {
				t.Errorf("asked for %v, want %v", asked, slots[:tt.asked])
			}
			_ = lock.Unlock()
		})
	}
}

// A Locker with TryAny gets all slots in one call.
func TestSlotsInOneCall(t *testing.T) {
	t.Parallel()
	locks := &countingAny{Memory: sqllock.NewMemory()}
	l := ratelimit.AtMost(3, locks, "export")
	for range 3 {
		must(t, l, "ada")
	}
	if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("fourth: %v, want ErrBusy", err)
	}
	if locks.calls != 4 {
		t.Errorf("%d calls, want one for each of 4 requests", locks.calls)
	}
}

type countingAny struct {
	*sqllock.Memory
	calls int
}

func (c *countingAny) TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	c.calls++
	return c.Memory.TryAny(ctx, keys...)
}

func (c *countingAny) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) {
	panic("one key at a time, though several can be had at once")
}

// Carried finds the places that a context carries, in any slot and below other
// locks. It does not count those that were released.
func TestCarried(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	l, same := ratelimit.AtMost(2, locks, "export"), ratelimit.AtMost(2, locks, "export")
	other := ratelimit.OneAtATime(locks, "other")
	if l.Carried(t.Context(), "ada") {
		t.Error("a context without a lock carries one")
	}
	must(t, l, "ada") // slot 0, of another request
	lock := must(t, l, "ada")
	ctx, cancel := lock.Bind(t.Context())
	defer cancel()
	ctx, cancelOuter := must(t, other, "ada").Bind(ctx)
	defer cancelOuter()
	if !l.Carried(ctx, "ada") || !same.Carried(ctx, "ada") || !other.Carried(ctx, "ada") {
		t.Error("a context with a place of both limits does not carry it")
	}
	if l.Carried(ctx, "eve") || other.Carried(ctx, "eve") || l.Carried(ctx, "") {
		t.Error("another id's place is carried")
	}
	unlock(t, lock)
	if l.Carried(ctx, "ada") || !other.Carried(ctx, "ada") {
		t.Error("a place that was given back is carried, or one that was not is not")
	}
}

// A place is carried also if a later one, inside, was released.
func TestCarriedAround(t *testing.T) {
	t.Parallel()
	l := ratelimit.AtMost(2, sqllock.NewMemory(), "export")
	outer := must(t, l, "ada")
	ctx, cancel := outer.Bind(t.Context())
	defer cancel()
	inner := must(t, l, "ada")
	ctx, cancelInner := inner.Bind(ctx)
	defer cancelInner()
	unlock(t, inner)
	if !l.Carried(ctx, "ada") {
		t.Error("the outer place is not carried once the inner one was given back")
	}
	unlock(t, outer)
	if l.Carried(ctx, "ada") {
		t.Error("no place is left, and one is carried")
	}
}

// No key is made of an id that Acquire would reject, since clients choose its
// length.
func TestCarriedBadID(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	l := ratelimit.AtMost(100, locks, "export")
	ctx, cancel := must(t, ratelimit.OneAtATime(locks, "other"), "ada").Bind(t.Context())
	defer cancel()
	id, fastest := strings.Repeat("x", 1<<20), time.Hour
	for range 10 {
		start := time.Now()
		if l.Carried(ctx, id) {
			t.Fatal("an id that cannot be held is carried")
		}
		fastest = min(fastest, time.Since(start))
	}
	if fastest > 10*time.Millisecond { // a hundred hashes of a megabyte take more
		t.Errorf("a long id costs %v", fastest)
	}
}
