package otellatchkey

import (
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// Limiter shows the figures of l under its namespace. Those of several limiters
// of one namespace are added up, since they share their limit. A Limiter counts
// once, however often it is given. Its two histograms need [Metrics.Observe].
//
// remove takes l out again, for good. What l has counted stays in the sum of its
// namespace, which never falls, until the last limiter of the namespace is taken
// out. A process whose limiters last as long as itself never needs it. Limiter
// panics if l is nil.
func (m *Metrics) Limiter(l *ratelimit.Limiter) (remove func()) {
	if l == nil {
		panic("otellatchkey: Limiter needs a *ratelimit.Limiter that is not nil")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limiters[l]++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.limiters[l]--; m.limiters[l] == 0 {
			delete(m.limiters, l)
			m.keepLocked(l)
		}
	})
}

// Session shows the figures of s under name. Each Session needs a name of its
// own: two leases have no sum. The name is an
// attribute, so it must be one of a few. Its two histograms need
// [Metrics.SessionObserver] under the same name.
//
// remove takes s out again, and frees the name. Session panics if s is nil, or
// if name is empty, not UTF-8 or in use.
func (m *Metrics) Session(name string, s *sqllock.Session) (remove func()) {
	if s == nil {
		panic("otellatchkey: Session needs a *sqllock.Session that is not nil")
	}
	return register(m, "Session", m.sessions, name, s)
}

// Campaign shows under name whether this process leads. Each Campaign of a
// process needs a name of its own. The Campaigns of a fleet for one key should
// share their name, so that a rule can count the leaders.
//
// remove takes c out again, and frees the name. Campaign panics if c is nil, or
// if name is empty, not UTF-8 or in use.
func (m *Metrics) Campaign(name string, c *election.Campaign) (remove func()) {
	if c == nil {
		panic("otellatchkey: Campaign needs an *election.Campaign that is not nil")
	}
	return register(m, "Campaign", m.campaigns, name, c)
}

func register[T any](m *Metrics, caller string, all map[string]T, name string, value T) (remove func()) {
	if name == "" || !utf8.ValidString(name) {
		panic("otellatchkey: " + caller + " needs a name that is UTF-8 and not empty")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := all[name]; ok {
		panic("otellatchkey: " + caller + " needs a name that is not in use: " + name)
	}
	all[name] = value
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(all, name)
	})
}

// Finding counts f. It has the signature of the report of [lockwatch.Watch].
func (m *Metrics) Finding(f lockwatch.Finding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.findings[stateOf(f)]++
}

// registered is a copy of what a Metrics was given.
type registered struct {
	limiters  []*ratelimit.Limiter
	removed   map[sqllock.Namespace]limiterFigures
	sessions  map[string]*sqllock.Session
	campaigns map[string]*election.Campaign
	findings  map[findingState]int64
}

func (m *Metrics) registered() registered {
	m.mu.Lock()
	defer m.mu.Unlock()
	return registered{
		slices.Collect(maps.Keys(m.limiters)), maps.Clone(m.removed), maps.Clone(m.sessions), maps.Clone(m.campaigns), maps.Clone(m.findings),
	}
}
