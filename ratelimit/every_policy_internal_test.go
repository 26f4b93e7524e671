package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// TestEveryPolicy makes requests for stacks whose levels have policies at
// random. Their funcs and Observers misbehave, clients leave, locks are lost,
// and databases go away. In the end nothing is held, counted or waited for any
// more, and every place can be had.
func TestEveryPolicy(t *testing.T) {
	for range 60 {
		synctest.Test(t, func(t *testing.T) {
			c := newChaos(t)
			var callers sync.WaitGroup
			for range 16 {
				callers.Go(func() {
					for range 25 {
						c.request()
					}
				})
			}
			callers.Go(func() {
				for range 20 {
					time.Sleep(rand.N(20 * time.Millisecond))
					c.lockers[rand.IntN(2)].Lose()
				}
			})
			callers.Wait()
			c.check()
		})
	}
}

// A chaosLocker is a Memory that is away at times.
type chaosLocker struct {
	*sqllock.Memory
	*inside.Groups
}

func newChaosLocker() chaosLocker {
	c := chaosLocker{sqllock.NewMemory(), new(inside.Groups)}
	*c.Groups = inside.GroupsBy(c.tryEach)
	return c
}

// fails returns an error at times.
func (c chaosLocker) fails() error {
	switch rand.IntN(40) {
	case 0:
		return fmt.Errorf("%w: away", sqllock.ErrUnavailable)
	case 1:
		return sqllock.ErrCapacity
	}
	time.Sleep(rand.N(2 * time.Millisecond))
	return nil
}

func (c chaosLocker) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	if err := c.fails(); err != nil {
		return nil, err
	}
	return c.Memory.TryLock(ctx, key)
}

func (c chaosLocker) tryEach(ctx context.Context, groups [][]sqllock.Key) (sqllock.Locks, error) {
	if err := c.fails(); err != nil {
		return nil, err
	}
	return lockertest.TryEach(ctx, c.Memory, groups)
}

func (c chaosLocker) LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	if err := c.fails(); err != nil {
		return nil, err
	}
	return c.Memory.LockAny(ctx, keys...)
}

// A chaos is Limiters that share two Lockers.
type chaos struct {
	t        *testing.T
	lockers  [2]chaosLocker
	limiters []*Limiter
	requests atomic.Int64 // that have returned
	levels   atomic.Int64 // of those that were admitted
	panicked atomic.Int64
}

const chaosSecret = "the-id"

func newChaos(t *testing.T) *chaos {
	c := &chaos{t: t, lockers: [2]chaosLocker{newChaosLocker(), newChaosLocker()}}
	for i := range 4 {
		var opts []Option
		often := func(n int, opt Option) {
			if rand.IntN(n) == 0 {
				opts = append(opts, opt)
			}
		}
		often(2, WithWait(50*time.Millisecond, 1+rand.IntN(4)))
		often(4, WithDryRun())
		often(3, WithFailOpen())
		often(3, WithMaxHold(time.Millisecond))
		often(3, WithLimit(c.limit))
		often(3, WithRetryAfter(func(time.Duration) time.Duration { return time.Duration(rand.Int64()) - 1<<62 }))
		often(2, WithObserver(c.observe))
		slots := 1 + rand.IntN(4)
		if slots > 1 {
			often(2, WithClasses(c.class, Class{Name: "person", Reserved: 1, Priority: 1}, Class{Name: "job", Priority: -1}))
		}
		c.limiters = append(c.limiters, AtMost(slots, c.lockers[i%3/2], sqllock.Namespace("n"+strconv.Itoa(i)), opts...))
	}
	return c
}

// maybePanic panics at times.
func (c *chaos) maybePanic() {
	if rand.IntN(60) == 0 {
		panic(c)
	}
}

func (c *chaos) observe(_ context.Context, e Event) {
	if e.Result == Released || e.Result == Lost {
		return // a panic would end in the goroutine of a Locker
	}
	c.maybePanic()
}

func (c *chaos) limit(context.Context, string) int {
	c.maybePanic()
	switch rand.IntN(20) {
	case 0:
		time.Sleep(rand.N(5 * time.Millisecond))
	case 1:
		return -rand.IntN(2)
	case 2:
		return 1 << 30
	}
	return 1 + rand.IntN(4)
}

func (c *chaos) class(context.Context) string {
	c.maybePanic()
	return []string{"", "person", "job", "none"}[rand.IntN(60)%20%4]
}

// request makes a request for some levels.
func (c *chaos) request() {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	if rand.IntN(4) == 0 {
		time.AfterFunc(rand.N(60*time.Millisecond), cancel)
	}
	defer func() {
		if p := recover(); p == c {
			c.panicked.Add(1)
		} else if p != nil {
			panic(p)
		}
	}()
	var levels []Level
	for _, i := range rand.Perm(len(c.limiters))[:1+rand.IntN(4)] {
		levels = append(levels, Level{c.limiters[i], chaosSecret + strconv.Itoa(rand.IntN(2))})
	}
	locks, err := sqllock.Locks{nil}, error(nil)
	if len(levels) == 1 {
		locks[0], err = levels[0].Limiter.Acquire(ctx, levels[0].ID)
	} else {
		locks, err = AcquireAll(ctx, levels...)
	}
	c.requests.Add(1)
	if err != nil {
		c.checkError(ctx, err)
		return
	}
	c.levels.Add(int64(len(levels)) - 1)
	time.Sleep(rand.N(4 * time.Millisecond))
	_ = locks.Unlock()
}

// checkError reports an error that a caller should not get.
func (c *chaos) checkError(ctx context.Context, err error) {
	var busy *BusyError
	switch {
	case strings.Contains(err.Error(), chaosSecret), !strings.HasPrefix(err.Error(), "ratelimit: n"):
		c.t.Errorf("%q, want the namespace and no id", err)
	case errors.As(err, &busy):
		if busy.RetryAfter <= 0 || busy.Limit <= 0 || busy.Limit > 4 {
			c.t.Errorf("%+v", busy)
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled) && ctx.Err() == nil:
		c.t.Errorf("%v, want no error of the wait", err)
	case errors.Is(err, sqllock.ErrHeld):
		c.t.Errorf("%v, want ErrBusy", err)
	}
}

// check reports what is left when all requests have ended.
func (c *chaos) check() {
	synctest.Wait()
	var decided uint64
	for _, l := range c.limiters {
		s := l.Stats()
		for _, r := range []Result{Admitted, Busy, WaitTimeout, Canceled, FailedOpen, DryRun, Failed} {
			decided += s.Requests[r]
		}
		if s.Active != 0 || s.AtLimit != 0 || s.Queued != 0 || s.Requests[Admitted] != s.Requests[Released]+s.Requests[Lost] || len(l.holds.open) != 0 {
			c.t.Errorf("%s: %d active, %d at the limit, %d wait, %d ids; %v", l.ns, s.Active, s.AtLimit, s.Queued, len(l.holds.open), s.Requests)
		}
		all := AtMost(l.most, l.locks.(chaosLocker).Memory, l.ns)
		for range l.most {
			lock, err := all.Acquire(c.t.Context(), chaosSecret+"0")
			if err != nil {
				c.t.Errorf("%s: %v, want every place to be free", l.ns, err)
			}
			defer lock.Unlock() //nolint:errcheck // of a test
		}
	}
	if lo := c.requests.Load() + c.levels.Load(); decided < uint64(lo) || decided > uint64(lo+4*c.panicked.Load()) {
		c.t.Errorf("%d decisions of %d requests on %d levels more, and %d panics", decided, c.requests.Load(), c.levels.Load(), c.panicked.Load())
	}
	for _, l := range c.limiters {
		if len(l.lines.m) > 0 {
			c.t.Error("a line is left")
		}
	}
}
