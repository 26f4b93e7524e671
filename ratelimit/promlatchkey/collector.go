package promlatchkey

import (
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A Collector is a [prometheus.Collector] of the figures of limiters, Sessions,
// Campaigns and findings. New makes one. Its methods are safe for concurrent
// use.
type Collector struct {
	mu        sync.Mutex                 // protects what follows; not held while a scrape reads figures
	limiters  map[*ratelimit.Limiter]int // how often each was registered
	removed   map[sqllock.Namespace]ratelimit.Stats
	sessions  map[string]*sqllock.Session
	campaigns map[string]*election.Campaign
	findings  map[findingState]uint64
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector that shows findings only, until it is given more.
func New() *Collector {
	c := &Collector{
		limiters:  make(map[*ratelimit.Limiter]int),
		removed:   make(map[sqllock.Namespace]ratelimit.Stats),
		sessions:  make(map[string]*sqllock.Session),
		campaigns: make(map[string]*election.Campaign),
		findings:  make(map[findingState]uint64),
	}
	for _, kind := range findingKinds {
		for _, state := range findingStates {
			c.findings[findingState{kind, state}] = 0
		}
	}
	return c
}

// Limiter shows the figures of l under its namespace. Those of several limiters
// of one namespace are added up, since they share their limit. A Limiter counts
// once, however often it is given.
//
// remove takes l out again, for good. What l has counted stays in the sum of its
// namespace, which never falls, until the last limiter of the namespace is taken
// out. A process whose limiters last as long as itself never needs it. Limiter
// panics if l is nil.
func (c *Collector) Limiter(l *ratelimit.Limiter) (remove func()) {
	if l == nil {
		panic("promlatchkey: Limiter needs a *ratelimit.Limiter that is not nil")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limiters[l]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.limiters[l]--; c.limiters[l] == 0 {
			delete(c.limiters, l)
			c.keepLocked(l)
		}
	})
}

// Session shows the figures of s under name. Each Session needs a name of its
// own: two leases have no sum. The name is a
// label, so it must be one of a few.
//
// remove takes s out again, and frees the name. Session panics if s is nil, or
// if name is empty, not UTF-8 or in use.
func (c *Collector) Session(name string, s *sqllock.Session) (remove func()) {
	if s == nil {
		panic("promlatchkey: Session needs a *sqllock.Session that is not nil")
	}
	return register(c, "Session", c.sessions, name, s)
}

// Campaign shows under name whether this process leads. Each Campaign of a
// process needs a name of its own. The Campaigns of a fleet for one key should
// share their name, so that a rule can count the leaders.
//
// remove takes campaign out again, and frees the name. Campaign panics if
// campaign is nil, or if name is empty, not UTF-8 or in use.
func (c *Collector) Campaign(name string, campaign *election.Campaign) (remove func()) {
	if campaign == nil {
		panic("promlatchkey: Campaign needs an *election.Campaign that is not nil")
	}
	return register(c, "Campaign", c.campaigns, name, campaign)
}

func register[T any](c *Collector, caller string, m map[string]T, name string, value T) (remove func()) {
	if name == "" || !utf8.ValidString(name) {
		panic("promlatchkey: " + caller + " needs a name that is UTF-8 and not empty")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := m[name]; ok {
		panic("promlatchkey: " + caller + " needs a name that is not in use: " + name)
	}
	m[name] = value
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(m, name)
	})
}

// Finding counts f. It has the signature of the report of [lockwatch.Watch].
func (c *Collector) Finding(f lockwatch.Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.findings[stateOf(f)]++
}

// registered is a copy of what a Collector was given.
type registered struct {
	limiters  []*ratelimit.Limiter
	removed   map[sqllock.Namespace]ratelimit.Stats
	sessions  map[string]*sqllock.Session
	campaigns map[string]*election.Campaign
	findings  map[findingState]uint64
}

func (c *Collector) registered() registered {
	c.mu.Lock()
	defer c.mu.Unlock()
	return registered{
		slices.Collect(maps.Keys(c.limiters)), maps.Clone(c.removed), maps.Clone(c.sessions), maps.Clone(c.campaigns), maps.Clone(c.findings),
	}
}
