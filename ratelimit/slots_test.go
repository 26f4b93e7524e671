package ratelimit_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/lockertest"
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

// A counting locker counts the calls that a Memory gets.
type counting struct {
	*sqllock.Memory
	inside.Groups
	one, any, each int
}

func (c *counting) TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	c.any++
	return c.Memory.TryAny(ctx, keys...)
}

func (c *counting) tryEach(ctx context.Context, groups [][]sqllock.Key) (sqllock.Locks, error) {
	c.each++
	return lockertest.TryEach(ctx, c.Memory, groups)
}

func (c *counting) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	c.one++
	return c.Memory.TryLock(ctx, key)
}

// A Locker that can do so gets all slots, or all levels of a stack, in one call.
// A single slot it gets by TryLock, which a program may have replaced.
func TestOneCall(t *testing.T) {
	t.Parallel()
	c := &counting{Memory: sqllock.NewMemory()}
	c.Groups = inside.GroupsBy(c.tryEach)
	l := ratelimit.AtMost(3, c, "export")
	fill(t, l, "ada", 3)
	mustBeBusy(t, l, "ada")
	if c.any != 4 || c.each != 0 {
		t.Errorf("%d calls of TryAny and %d for groups, want one for each of 4 requests", c.any, c.each)
	}
	locks, err := ratelimit.AcquireAll(t.Context(),
		level(ratelimit.OneAtATime(c, "user"), "ada"),
		level(ratelimit.AtMost(3, c, "tenant"), "acme"),
		level(ratelimit.AtMost(50, c, "total"), "all"))
	if err != nil || c.each != 1 || c.any != 4 {
		t.Errorf("%v after %d calls for a stack, want one", err, c.each)
	}
	_ = locks.Unlock()
	if c.one != 0 {
		t.Errorf("%d calls of TryLock, though several keys can be had at once", c.one)
	}
	if must(t, ratelimit.OneAtATime(c, "one"), "ada"); c.one != 1 || c.any != 4 {
		t.Errorf("%d calls of TryLock and %d of TryAny for a single slot, want 1 and none", c.one, c.any-4)
	}
}

// Carried finds the places that a context carries, in any slot and below other
// locks. It does not count those that were released, or those of an id that the
// Limiter would reject.
func TestCarried(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	l, same := ratelimit.AtMost(3, locks, "export"), ratelimit.AtMost(3, locks, "export")
	other := ratelimit.OneAtATime(locks, "other")
	must(t, l, "ada") // slot 0, of another request
	outer, between, inner := must(t, l, "ada"), must(t, other, "ada"), must(t, l, "ada")
	ctx, cancel := sqllock.Locks{outer, between, inner}.Bind(t.Context())
	defer cancel()
	carried := func(step string, want, wantOther bool) {
		t.Helper()
		if inside.Carried(ctx, l, "ada") != want || inside.Carried(ctx, same, "ada") != want || inside.Carried(ctx, other, "ada") != wantOther {
			t.Errorf("%s: carried is not %v, and %v for the other limit", step, want, wantOther)
		}
		if inside.Carried(ctx, l, "eve") || inside.Carried(ctx, l, "") || inside.Carried(t.Context(), l, "ada") {
			t.Errorf("%s: a place is carried for another id, or by another context", step)
		}
	}
	carried("with all", true, true)
	unlock(t, inner)
	carried("without the inner one", true, true)
	unlock(t, between)
	carried("with the outer one alone", true, false)
	unlock(t, outer)
	carried("with none", false, false)

	id := strings.Repeat("a", 2000)
	ctx, cancel = must(t, ratelimit.OneAtATime(locks, "export", ratelimit.WithMaxIDLen(4000)), id).Bind(t.Context())
	defer cancel()
	if inside.Carried(ctx, l, id) {
		t.Error("a place is carried for an id that is too long")
	}
}

// Ids never share slots, although a Limiter with many slots keeps those of some
// ids.
func TestSlotsOfManyIDs(t *testing.T) {
	l := ratelimit.AtMost(8, sqllock.NewMemory(), "export")
	for i := range 300 {
		fill(t, l, strconv.Itoa(i), 8)
	}
}
