package worker

import (
	"context"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// How many keys of their own the mixed callers have.
const (
	readersKeys = 2
	setsKeys    = 8
)

func readersKey(i int) sqllock.Key { return sqllock.Namespace("readers").Key(strconv.Itoa(i)) }
func setsKey(i int) sqllock.Key    { return sqllock.Namespace("sets").Key(strconv.Itoa(i)) }

// choose makes up the next call.
func (c *mixed) choose() call {
	a := call{waits: c.chance(40)}
	switch n := c.rng.IntN(100); {
	case n < 24 && c.w.config.sharesLocks():
		c.reader(&a)
	case n < 30: // an exclusive holder among readers
		c.plain(&a, readersKey(c.rng.IntN(readersKeys)))
	case n < 43:
		c.set(&a)
	case n < 50: // among sets
		c.plain(&a, setsKey(c.rng.IntN(setsKeys)))
	case n < 60:
		c.groups(&a)
	case n < 75:
		c.limit(&a)
	default:
		c.stack(&a)
	}
	a.limit = 5*time.Millisecond + c.upTo(400*time.Millisecond)
	if c.chance(10) { // gives up early, some before they have begun
		a.limit = time.Nanosecond + c.upTo(3*time.Millisecond)
	}
	return a
}

// one makes a call that brings one lock one that brings several.
func one(take func(context.Context, sqllock.Key) (*sqllock.Lock, error), key sqllock.Key) func(context.Context) (sqllock.Locks, error) {
	return func(ctx context.Context) (sqllock.Locks, error) {
		lock, err := take(ctx, key)
		return sqllock.Locks{lock}, err
	}
}

func (c *mixed) plain(a *call, key sqllock.Key) {
	a.places = []place{{key: key.Int64()}}
	a.request = one(c.w.session.TryLock, key)
	if a.waits {
		a.request = one(c.w.session.Lock, key)
	}
}

func (c *mixed) reader(a *call) {
	key := readersKey(c.rng.IntN(readersKeys))
	a.kind, a.places = history.Reader, []place{{key: key.Int64()}}
	a.request = one(c.w.session.TryRLock, key)
	if a.waits {
		a.request = one(c.w.session.RLock, key)
	}
}

func (c *mixed) set(a *call) {
	var keys []sqllock.Key
	for _, i := range c.rng.Perm(setsKeys)[:2+c.rng.IntN(3)] {
		keys = append(keys, setsKey(i))
		a.places = append(a.places, place{key: setsKey(i).Int64()})
	}
	a.kind = history.Set
	a.request = func(ctx context.Context) (sqllock.Locks, error) { return c.w.session.TryLockAll(ctx, keys...) }
	if a.waits {
		a.request = func(ctx context.Context) (sqllock.Locks, error) { return c.w.session.LockAll(ctx, keys...) }
	}
}

// groups makes a a call for one key of each of two or three groups. TryEach does
// not wait.
func (c *mixed) groups(a *call) {
	groups := make([][]sqllock.Key, 2+c.rng.IntN(2))
	for n, i := range c.rng.Perm(setsKeys)[:2*len(groups)] {
		groups[n/2] = append(groups[n/2], setsKey(i))
	}
	for _, g := range groups {
		a.places = append(a.places, place{key: g[0].Int64()})
	}
	a.kind, a.waits = history.Groups, false
	a.request = func(ctx context.Context) (sqllock.Locks, error) {
		return inside.TryEach[sqllock.Key, sqllock.Locks](ctx, inside.GroupsOf(c.w.session), groups)
	}
}

func (c *mixed) limit(a *call) {
	l := &c.w.limits[c.rng.IntN(len(c.w.limits))]
	id := l.id(c)
	a.kind, a.places, a.wait = history.Limit, []place{l.place(id)}, l.wait(a.waits)
	a.request = func(ctx context.Context) (sqllock.Locks, error) {
		lock, err := l.limiter(a.waits).Acquire(ctx, id)
		return sqllock.Locks{lock}, err
	}
}

// stack makes a a call on two or all levels. Of those that wait, one may have
// levels that do not.
func (c *mixed) stack(a *call) {
	var stack []ratelimit.Level
	skipped := c.rng.IntN(2 * len(c.w.limits)) // half of them skip none
	waits := false
	for i := range c.w.limits {
		if i == skipped {
			continue
		}
		l, id := &c.w.limits[i], c.w.limits[i].id(c)
		here := a.waits && c.chance(70)
		waits = waits || here
		stack = append(stack, ratelimit.Level{Limiter: l.limiter(here), ID: id})
		a.places = append(a.places, l.place(id))
		a.wait += l.wait(here)
	}
	a.kind, a.waits = history.Stack, waits
	a.request = func(ctx context.Context) (sqllock.Locks, error) { return ratelimit.AcquireAll(ctx, stack...) }
}
