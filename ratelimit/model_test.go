package ratelimit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

var modelTime = flag.Duration("model", 5*time.Second, "how long TestLongModelOnSessions makes requests")

// TestModel makes a random history of single limits and stacks, of two
// instances, on a Memory. Virtual time makes it a long one.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := sqllock.NewMemory()
		newModel(t, nil, locks, locks).run(5*time.Second, 300*time.Millisecond)
	})
}

// TestModelWithFaults is TestModel with policies at random, funcs and Observers
// that misbehave, locks that are lost, and a database that goes away.
func TestModelWithFaults(t *testing.T) {
	for range 40 {
		synctest.Test(t, func(t *testing.T) {
			locks := newFaultyLocker()
			newModel(t, locks.Memory, locks, locks).run(150*time.Millisecond, 30*time.Millisecond)
		})
	}
}

// TestLongModelOnSessions is TestModel with two Sessions. A longer run is
// go test ./ratelimit -run ModelOnSessions -model 60s.
func TestLongModelOnSessions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	newModel(t, nil, dbtest.Session(t, "pgx", dsn), dbtest.Session(t, "pgx", dsn)).run(*modelTime, *modelTime/3)
}

// A model is what the limits should do. It knows each hold from the return of
// its Acquire to the call of its Unlock.
//
// Instances may see a new limit at different times, and a request may take long
// after its look at the limit. So the model does not compare a hold with the
// limit of the moment. Each hold has the limit that its own request went by
// last. What holds exactly: with an admission that went by a limit of m, at most
// m places of its id are held, at the moment of its grant. See check.
type model struct {
	t         *testing.T
	faulty    *sqllock.Memory // below the Lockers; nil: there are no faults
	instances []*instance
	stop      atomic.Bool
	ctx       context.Context // of all requests
	cancel    context.CancelFunc

	mu    sync.Mutex       // protects what follows
	plans []map[string]int // by instance: the limit of each user
	holds map[modelID][]*modelHold
}

// A modelID is an id of a limit.
type modelID struct {
	ns sqllock.Namespace
	id string
}

// A modelHold is a request that has, or will have, a place of an id.
type modelHold struct {
	class string
	limit int // that the request goes by
	lock  *sqllock.Lock
}

// lookKey is the context key of the *modelHold of the user's level.
type lookKey struct{}

// An instance is the Limiters of one process.
type instance struct {
	locks                 sqllock.Locker
	users, tenants, total *ratelimit.Limiter
	journals              [3]journal
}

// The limits of the model. One place of a tenant is reserved.
const (
	modelUsers   = 4
	modelTenants = 4
	modelTotal   = 3

	modelSecret = "the-id-"
)

func newModel(t *testing.T, faulty *sqllock.Memory, lockers ...sqllock.Locker) *model {
	m := &model{t: t, faulty: faulty, holds: make(map[modelID][]*modelHold)}
	m.ctx, m.cancel = context.WithCancel(t.Context())
	classes := ratelimit.WithClasses(func(ctx context.Context) string { m.fault(60); return classOf(ctx) }, ratelimit.Class{Name: "person", Reserved: 1, Priority: 1}, ratelimit.Class{Name: "job", Priority: -1})
	for i, locks := range lockers {
		in := &instance{locks: locks}
		limit := ratelimit.WithLimit(func(ctx context.Context, user string) int { return m.look(ctx, i, user) })
		in.users = ratelimit.AtMost(modelUsers, locks, "user", append(m.policy(&in.journals[0]), classes, limit)...)
		in.tenants = ratelimit.AtMost(modelTenants, locks, "tenant", append(m.policy(&in.journals[1]), classes)...)
		in.total = ratelimit.AtMost(modelTotal, locks, "total", m.policy(&in.journals[2])...)
		m.instances = append(m.instances, in)
		m.plans = append(m.plans, make(map[string]int))
	}
	m.newPlans(func() int { return modelUsers })
	return m
}

// policy returns the options of a Limiter.
func (m *model) policy(j *journal) []ratelimit.Option {
	observer := ratelimit.WithObserver(j.observe)
	if m.faulty == nil {
		return []ratelimit.Option{ratelimit.WithWait(time.Hour, 40), observer}
	}
	opts := []ratelimit.Option{
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
			if e.Result != ratelimit.Released && e.Result != ratelimit.Lost { // that would end in the goroutine of a Locker
				m.fault(60)
			}
		}), observer,
		ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return time.Duration(rand.Int64()) - 1<<62 }),
	}
	for _, sometimes := range []ratelimit.Option{
		ratelimit.WithWait(50*time.Millisecond, 1+rand.IntN(4)), ratelimit.WithFailOpen(), ratelimit.WithDryRun(), ratelimit.WithMaxHold(time.Millisecond),
	} {
		if rand.IntN(3) == 0 {
			opts = append(opts, sometimes)
		}
	}
	return opts
}

// fault panics one time in n, if there are faults. request recovers it.
func (m *model) fault(n int) {
	if m.faulty != nil && rand.IntN(n) == 0 {
		panic(m)
	}
}

// look returns the limit that an instance knows for a user, and notes that the
// request of ctx goes by it.
func (m *model) look(ctx context.Context, instance int, user string) int {
	m.fault(60)
	m.mu.Lock()
	defer m.mu.Unlock()
	limit := m.plans[instance][user]
	if m.faulty != nil && rand.IntN(30) == 0 {
		limit = []int{-1, 0, 1 << 30}[rand.IntN(3)]
	}
	if h, ok := ctx.Value(lookKey{}).(*modelHold); ok {
		h.limit = limit
	}
	return limit
}

// run makes requests for this long. A plan lasts for period.
func (m *model) run(d, period time.Duration) {
	var callers, plans sync.WaitGroup
	for i := range 24 {
		callers.Go(func() {
			for !m.stopped() {
				m.request(m.instances[i%len(m.instances)])
			}
		})
	}
	plans.Go(func() {
		for !m.stopped() {
			m.newPlans(func() int { return 1 + rand.IntN(modelUsers) })
			time.Sleep(period)
		}
	})
	if m.faulty != nil {
		plans.Go(func() {
			for !m.stopped() {
				time.Sleep(rand.N(20 * time.Millisecond))
				m.faulty.Lose()
			}
		})
	}
	time.Sleep(d)
	m.stop.Store(true)
	plans.Wait()
	m.newPlans(func() int { return modelUsers })
	late := time.AfterFunc(time.Minute, func() {
		m.t.Error("a request waits although all places are free")
		m.cancel()
	})
	callers.Wait() // each request that waits is served
	late.Stop()
	m.checkEnd()
}

func (m *model) stopped() bool { return m.stop.Load() }

// newPlans gives each user another limit, in each instance.
func (m *model) newPlans(limit func() int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, plan := range m.plans {
		for i := range 4 {
			plan[modelSecret+strconv.Itoa(i)] = limit()
		}
	}
}

// request makes a random request, and checks the limits when it is admitted.
func (m *model) request(in *instance) {
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	defer func() {
		if p := recover(); p != nil && p != m {
			panic(p)
		}
	}()
	if rand.IntN(4) == 0 { // its client leaves, perhaps while it waits
		time.AfterFunc(rand.N(10*time.Millisecond), cancel)
	}
	class := []string{"", "", "person", "job"}[rand.IntN(4)]
	ctx = as(ctx, class)
	user, tenant := modelSecret+strconv.Itoa(rand.IntN(4)), modelSecret+strconv.Itoa(rand.IntN(2))
	levels := []ratelimit.Level{level(in.users, user), level(in.tenants, tenant), level(in.total, "all")}
	if rand.IntN(3) == 0 { // in another order
		levels[0], levels[2] = levels[2], levels[0]
	}
	n := rand.IntN(4)
	if n == 0 { // of a single limit
		levels = levels[rand.IntN(3):][:1]
	} else {
		levels = levels[:min(n+1, 3)]
	}
	holds := make([]*modelHold, len(levels))
	for i, level := range levels {
		holds[i] = &modelHold{class: class, limit: level.Limiter.Limit()}
		if level.Limiter == in.users {
			ctx = context.WithValue(ctx, lookKey{}, holds[i])
		}
	}
	locks, err := sqllock.Locks{nil}, error(nil)
	if n == 0 {
		locks[0], err = levels[0].Limiter.Acquire(ctx, levels[0].ID)
	} else {
		locks, err = ratelimit.AcquireAll(ctx, levels...)
	}
	if err != nil {
		m.checkError(ctx, err)
		return
	}
	for i, level := range levels {
		if holds[i].lock = locks[i]; locks[i] != nil || m.faulty == nil {
			m.begin(modelID{level.Limiter.Namespace(), level.ID}, holds[i])
		}
	}
	time.Sleep(rand.N(4 * time.Millisecond))
	for i, level := range levels {
		m.end(modelID{level.Limiter.Namespace(), level.ID}, holds[i])
	}
	_ = locks.Unlock()
}

// checkError reports an error that a caller should not get.
func (m *model) checkError(ctx context.Context, err error) {
	var busy *ratelimit.BusyError
	switch {
	case m.faulty == nil && (!errors.Is(err, context.Canceled) || ctx.Err() == nil):
		m.t.Errorf("got %v, want a lock: nothing is away, and the time to wait is long", err)
	case !strings.HasPrefix(err.Error(), "ratelimit: "), strings.Contains(err.Error(), modelSecret):
		m.t.Errorf("%q, want the namespace and no id", err)
	case errors.As(err, &busy) && (busy.RetryAfter <= 0 || busy.Limit <= 0 || busy.Limit > modelUsers):
		m.t.Errorf("%+v", busy)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled) && ctx.Err() == nil, errors.Is(err, sqllock.ErrHeld):
		m.t.Errorf("%v, want no error of the wait, and no ErrHeld", err)
	}
}

// begin adds a hold that has begun, and checks that there are not too many.
func (m *model) begin(id modelID, h *modelHold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds[id] = append(m.holds[id], h)
	m.check(id)
}

// end removes a hold that is about to end.
func (m *model) end(id modelID, h *modelHold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds[id] = slices.DeleteFunc(m.holds[id], func(other *modelHold) bool { return other == h })
}

// check reports holds of an id that should not be there together. Each has a slot
// of its own, below the limit by which it was admitted. So a limit is exceeded
// only by holds from before it was lowered.
func (m *model) check(id modelID) {
	slots := make(map[int]bool)
	others := 0
	for _, h := range m.holds[id] {
		if h.lock.Err() != nil {
			continue // a Session on a busy machine may lose its locks
		}
		slot := 0
		for h.lock.Key() != sqllock.Namespace(id.ns).SlotKey(id.id, slot) {
			slot++
		}
		if slots[slot] {
			m.t.Errorf("%s: slot %d is held twice", id.ns, slot)
		}
		if slots[slot] = true; slot >= h.limit {
			m.t.Errorf("%s: slot %d was taken under a limit of %d", id.ns, slot, h.limit)
		}
		if h.class != "person" {
			others++
		}
	}
	if id.ns == "tenant" && others > modelTenants-1 {
		m.t.Errorf("tenant: %d requests of no class with a reserved place", others)
	}
}

// checkEnd checks that all places are free, and that the figures add up.
func (m *model) checkEnd() {
	var waited [3]uint64
	for _, in := range m.instances {
		for i, l := range []*ratelimit.Limiter{in.users, in.tenants, in.total} {
			s := l.Stats()
			in.journals[i].agree(m.t, s)
			rejected := s.Requests[ratelimit.Busy] + s.Requests[ratelimit.WaitTimeout]
			if s.Active != 0 || s.Queued != 0 || s.AtLimit != 0 || m.faulty == nil && rejected != 0 {
				m.t.Errorf("%s at the end: %d active, %d wait, %d at their limit, %v", l.Namespace(), s.Active, s.Queued, s.AtLimit, s.Requests)
			}
			waited[i] += s.TimeInQueue.Count
		}
	}
	if m.faulty == nil && slices.Contains(waited[:], 0) {
		m.t.Errorf("%d have waited on each level, want some", waited)
	}
	locks := m.instances[0].locks
	if m.faulty != nil {
		locks = m.faulty
	}
	var wait []ratelimit.Option
	if _, ok := locks.(*sqllock.Session); ok { // a grant that comes after its caller has left goes back later
		wait = append(wait, ratelimit.WithWait(time.Minute, 1))
	}
	for i := range 4 { // for any class
		for ns, most := range map[sqllock.Namespace]int{"user": modelUsers, "tenant": modelTenants} {
			for _, lock := range fill(m.t, ratelimit.AtMost(most, locks, ns, wait...), modelSecret+strconv.Itoa(i), most) {
				_ = lock.Unlock()
			}
		}
	}
	for _, lock := range fill(m.t, ratelimit.AtMost(modelTotal, locks, "total", wait...), "all", modelTotal) {
		_ = lock.Unlock()
	}
}

// A faultyLocker is a Memory that is away at times.
type faultyLocker struct {
	*sqllock.Memory
	*inside.Groups
}

func newFaultyLocker() faultyLocker {
	f := faultyLocker{sqllock.NewMemory(), new(inside.Groups)}
	*f.Groups = inside.GroupsBy(func(ctx context.Context, groups [][]sqllock.Key) (sqllock.Locks, error) {
		if err := f.fails(); err != nil {
			return nil, err
		}
		return lockertest.TryEach(ctx, f.Memory, groups)
	})
	return f
}

// fails returns an error at times.
func (f faultyLocker) fails() error {
	switch rand.IntN(40) {
	case 0:
		return fmt.Errorf("%w: away", sqllock.ErrUnavailable)
	case 1:
		return sqllock.ErrCapacity
	}
	time.Sleep(rand.N(2 * time.Millisecond))
	return nil
}

func (f faultyLocker) TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	if err := f.fails(); err != nil {
		return nil, err
	}
	return f.Memory.TryAny(ctx, keys...)
}
