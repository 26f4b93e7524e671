package ratelimit_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

var modelTime = flag.Duration("model", time.Second, "how long TestModelOnSessions makes requests")

// TestModel makes a random history of single limits and stacks, of two
// instances, on a Memory. Virtual time makes it a long one.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := sqllock.NewMemory()
		newModel(t, 150*time.Millisecond, locks, locks).run(5*time.Second, 300*time.Millisecond)
	})
}

// TestModelOnSessions is TestModel with two Sessions. A long run is
// go test ./ratelimit -run ModelOnSessions -model 60s.
func TestModelOnSessions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	driver := pgtest.Drivers()[0]
	newModel(t, time.Second, session(t, driver, dsn), session(t, driver, dsn)).run(*modelTime, *modelTime/3)
}

// A model is what the limits should do. It knows each hold from the return of
// its Acquire to the call of its Unlock.
type model struct {
	t         *testing.T
	instances []*instance
	stop      chan struct{}
	slack     time.Duration   // after it no request goes by an earlier plan
	ctx       context.Context // of all requests
	cancel    context.CancelFunc

	mu      sync.Mutex // protects what follows
	plan    int        // the limit of users
	changed time.Time  // when the plan was changed
	holds   map[sqllock.Namespace]map[string][]modelHold
}

// A modelHold is a request that has a place of an id.
type modelHold struct{ class string }

// An instance is the Limiters of one process.
type instance struct {
	users, tenants, total *ratelimit.Limiter
	journals              [3]journal
}

// The limits of the model. One place of a tenant is reserved.
const (
	modelUsers   = 4
	modelTenants = 4
	modelTotal   = 6
)

func newModel(t *testing.T, slack time.Duration, lockers ...sqllock.Locker) *model {
	m := &model{t: t, slack: slack, stop: make(chan struct{}), plan: modelUsers, holds: make(map[sqllock.Namespace]map[string][]modelHold)}
	m.ctx, m.cancel = context.WithCancel(t.Context())
	wait := ratelimit.WithWait(time.Hour, 40)
	classes := ratelimit.WithClasses(classOf, ratelimit.Class{Name: "person", Reserved: 1, Priority: 1}, ratelimit.Class{Name: "job", Priority: -1})
	for _, locks := range lockers {
		in := &instance{}
		in.users = ratelimit.AtMost(modelUsers, locks, "user", wait, ratelimit.WithLimit(m.limit), ratelimit.WithObserver(in.journals[0].observe))
		in.tenants = ratelimit.AtMost(modelTenants, locks, "tenant", wait, classes, ratelimit.WithObserver(in.journals[1].observe))
		in.total = ratelimit.AtMost(modelTotal, locks, "total", wait, ratelimit.WithObserver(in.journals[2].observe))
		m.instances = append(m.instances, in)
	}
	return m
}

func (m *model) limit(context.Context, string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.plan
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
			m.newPlan(1 + rand.IntN(modelUsers))
			time.Sleep(period)
		}
	})
	time.Sleep(d)
	close(m.stop)
	plans.Wait()
	m.newPlan(modelUsers)
	served := make(chan struct{})
	go func() { callers.Wait(); close(served) }()
	select { // each request that waits is served
	case <-served:
	case <-time.After(20 * time.Second):
		m.t.Error("a request waits although all places are free")
		m.cancel()
		<-served
		return
	}
	m.checkEnd()
}

func (m *model) stopped() bool {
	select {
	case <-m.stop:
		return true
	default:
		return false
	}
}

func (m *model) newPlan(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plan, m.changed = n, time.Now()
}

// request makes a random request, and checks the limits when it is admitted.
func (m *model) request(in *instance) {
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	if rand.IntN(4) == 0 { // its client leaves, perhaps while it waits
		time.AfterFunc(rand.N(10*time.Millisecond), cancel)
	}
	class := []string{"", "", "person", "job"}[rand.IntN(4)]
	ctx = as(ctx, class)
	user, tenant := strconv.Itoa(rand.IntN(4)), strconv.Itoa(rand.IntN(2))
	levels := []ratelimit.Level{level(in.users, user), level(in.tenants, tenant), level(in.total, "all")}
	if rand.IntN(3) == 0 { // in another order
		levels[0], levels[2] = levels[2], levels[0]
	}
	var locks sqllock.Locks
	var err error
	if n := rand.IntN(4); n == 0 { // of a single limit
		levels = levels[rand.IntN(3):][:1]
		var lock *sqllock.Lock
		lock, err = levels[0].Limiter.Acquire(ctx, levels[0].ID)
		locks = sqllock.Locks{lock}
	} else {
		levels = levels[:min(n+1, 3)]
		locks, err = ratelimit.AcquireAll(ctx, levels...)
	}
	if err != nil {
		if !errors.Is(err, context.Canceled) || ctx.Err() == nil {
			m.t.Errorf("got %v, want a lock: nothing is away, and the time to wait is long", err)
		}
		return
	}
	if locks.Err() == nil { // a Session on a busy machine may lose its locks
		m.admit(levels, class)
		time.Sleep(rand.N(4 * time.Millisecond))
		m.end(levels, class)
	}
	_ = locks.Unlock()
}

// admit adds a hold on each level, and checks that there are not too many.
func (m *model) admit(levels []ratelimit.Level, class string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, level := range levels {
		ns, id := level.Limiter.Namespace(), level.ID
		if m.holds[ns] == nil {
			m.holds[ns] = make(map[string][]modelHold)
		}
		m.holds[ns][id] = append(m.holds[ns][id], modelHold{class})
		n, others := len(m.holds[ns][id]), 0
		for _, h := range m.holds[ns][id] {
			if h.class != "person" {
				others++
			}
		}
		limit := map[sqllock.Namespace]int{"user": modelUsers, "tenant": modelTenants, "total": modelTotal}[ns]
		if ns == "user" && time.Since(m.changed) > m.slack {
			limit = m.plan
		}
		if n > limit || ns == "tenant" && others > modelTenants-1 {
			m.t.Errorf("%s: %d requests at a time, %d of them of no class with a reserved place; the limit is %d", ns, n, others, limit)
		}
	}
}

// end removes a hold of each level, which is about to end.
func (m *model) end(levels []ratelimit.Level, class string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, level := range levels {
		holds := m.holds[level.Limiter.Namespace()][level.ID]
		for i, h := range holds {
			if h.class == class {
				m.holds[level.Limiter.Namespace()][level.ID] = append(holds[:i], holds[i+1:]...)
				break
			}
		}
	}
}

// checkEnd checks that all places are free, and that the figures add up.
func (m *model) checkEnd() {
	for _, in := range m.instances {
		for i, l := range []*ratelimit.Limiter{in.users, in.tenants, in.total} {
			s := l.Stats()
			in.journals[i].agree(m.t, s)
			if s.Active != 0 || s.Queued != 0 || s.AtLimit != 0 || s.Requests[ratelimit.Busy]+s.Requests[ratelimit.WaitTimeout] != 0 {
				m.t.Errorf("%s at the end: %d active, %d wait, %d at their limit, %v", l.Namespace(), s.Active, s.Queued, s.AtLimit, s.Requests)
			}
			if s.Requests[ratelimit.Admitted] == 0 || s.TimeInQueue.Count == 0 {
				m.t.Errorf("%s: %d were admitted, %d have waited", l.Namespace(), s.Requests[ratelimit.Admitted], s.TimeInQueue.Count)
			}
			m.t.Logf("%s: %v, %d have waited", l.Namespace(), s.Requests, s.TimeInQueue.Count)
		}
	}
	for i := range 4 {
		l := m.instances[0].users
		for _, lock := range fill2(m.t, l, strconv.Itoa(i), l.Limit()) {
			_ = lock.Unlock()
		}
	}
	for _, lock := range fill2(m.t, m.instances[1].total, "all", modelTotal) {
		_ = lock.Unlock()
	}
}
