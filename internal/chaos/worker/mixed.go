package worker

import (
	"context"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// How many keys of their own the mixed callers have.
const (
	readersKeys = 2
	setsKeys    = 8
)

func readersKey(i int) sqllock.Key { return sqllock.Namespace("readers").Key(strconv.Itoa(i)) }
func setsKey(i int) sqllock.Key    { return sqllock.Namespace("sets").Key(strconv.Itoa(i)) }

// runMixed uses readers, sets, limits and stacks. Its keys are not those of plain
// callers.
func (c *caller) runMixed(resting context.Context) {
	for resting.Err() == nil {
		if locks := c.take(c.mixed()); len(locks) > 0 {
			for _, l := range locks {
				l.hook()
			}
			c.stay(resting, locks, c.mixedLength(), func(bool) {})
			c.giveBack(resting, locks)
		}
		_ = Pause(resting, c.upTo(4*time.Millisecond))
	}
}

// mixed makes up the next call.
func (c *caller) mixed() request {
	a := request{waits: c.chance(40)}
	switch n := c.rng.IntN(100); {
	case n < 25 && c.config.sharesLocks():
		c.single(&a, history.Reader, readersKey(c.rng.IntN(readersKeys)), c.session.TryRLock, c.session.RLock)
	case n < 32: // an exclusive holder among readers
		c.single(&a, history.Plain, readersKey(c.rng.IntN(readersKeys)), c.session.TryLock, c.session.Lock)
	case n < 47:
		c.set(&a)
	case n < 55: // among sets
		c.single(&a, history.Plain, setsKey(c.rng.IntN(setsKeys)), c.session.TryLock, c.session.Lock)
	case n < 72:
		c.limit(&a)
	default:
		c.stack(&a)
	}
	c.patience(&a)
	return a
}

type taking = func(context.Context, sqllock.Key) (*sqllock.Lock, error)

func (c *caller) single(a *request, kind history.Kind, key sqllock.Key, try, wait taking) {
	a.kind, a.places, a.call = kind, []place{{key: key.Int64()}}, one(try, key)
	if a.waits {
		a.call = one(wait, key)
	}
}

func (c *caller) set(a *request) {
	var keys []sqllock.Key
	for _, i := range c.rng.Perm(setsKeys)[:2+c.rng.IntN(3)] {
		keys = append(keys, setsKey(i))
		a.places = append(a.places, place{key: setsKey(i).Int64()})
	}
	a.kind = history.Set
	a.call = func(ctx context.Context) (sqllock.Locks, error) { return c.session.TryLockAll(ctx, keys...) }
	if a.waits {
		a.call = func(ctx context.Context) (sqllock.Locks, error) { return c.session.LockAll(ctx, keys...) }
	}
}

// mixedLength is shorter than that of plain callers, since places are few.
func (c *caller) mixedLength() time.Duration {
	switch n := c.rng.IntN(200); {
	case n < 1:
		return c.upTo(c.config.Lease)
	case n < 16: // some outlast a limit that goes down
		return c.upTo(300 * time.Millisecond)
	default:
		return c.upTo(15 * time.Millisecond)
	}
}
