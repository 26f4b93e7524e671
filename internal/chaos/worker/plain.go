package worker

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Key is the i-th key of plain callers, by its name.
func Key(i int) sqllock.Key { return sqllock.Namespace("chaos").Key(strconv.Itoa(i)) }

// sameKey is Key(i) by another name: PostgreSQL sees the same number.
func sameKey(i int) sqllock.Key { return sqllock.ID(Key(i).Int64()) }

// runPlain asks for one key, or for one of several. Most locks are held for a
// moment, and some for longer than a lease, so that faults meet holders.
func (c *caller) runPlain(resting context.Context) {
	for resting.Err() == nil {
		if locks := c.take(c.plain()); len(locks) > 0 {
			if length := c.length(); length > time.Millisecond && c.chance(33) {
				c.listen(resting, locks[0], length)
			} else {
				locks[0].hook()
				c.stay(resting, locks, length, c.writing(locks[0]))
			}
			c.giveBack(resting, locks)
		}
		_ = Pause(resting, c.upTo(cmp.Or(c.config.Pause, 4*time.Millisecond)))
	}
}

// plain makes up the next call.
func (c *caller) plain() request {
	n := 1
	if c.chance(15) {
		n = 2 + c.rng.IntN(3)
	}
	a := request{waits: c.chance(25), one: true}
	var keys []sqllock.Key
	for _, i := range c.rng.Perm(c.config.Keys)[:min(n, c.config.Keys)] {
		key := Key(i)
		if c.chance(50) {
			key = sameKey(i)
		}
		keys = append(keys, key)
		a.places = append(a.places, place{key: key.Int64()})
	}
	take := func(ctx context.Context, _ sqllock.Key) (*sqllock.Lock, error) {
		switch {
		case len(keys) == 1 && a.waits:
			return c.session.Lock(ctx, keys[0])
		case len(keys) == 1:
			return c.session.TryLock(ctx, keys[0])
		case a.waits:
			return c.session.LockAny(ctx, keys...)
		}
		return c.session.TryAny(ctx, keys...)
	}
	a.call = one(take, keys[0])
	c.patience(&a)
	return a
}

func (c *caller) length() time.Duration {
	switch n := c.rng.IntN(100); {
	case n < 1:
		return c.upTo(2 * c.config.Lease)
	case n < 4:
		return c.upTo(time.Second)
	case n < 45:
		return c.upTo(30 * time.Millisecond)
	default:
		return c.upTo(time.Millisecond)
	}
}

// writing returns what makes one holder in five write behind the fence now and
// then. One holder in two that was told of a loss does not care, and writes.
func (c *caller) writing(l *observedLock) func(lost bool) {
	writes, at := c.chance(20), history.Now()
	return func(lost bool) {
		if lost && c.chance(50) || !lost && writes && history.Now() >= at {
			c.write(l)
			at = history.Now() + history.Moment(c.upTo(40*time.Millisecond))
		}
	}
}
