package instruments

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A Set is what to show. NewSet makes one. Its methods are safe for concurrent
// use. They panic on misuse.
type Set struct {
	owner string // the package whose name panics have in front

	mu        sync.Mutex                 // protects what follows; not held while figures are read
	limiters  map[*ratelimit.Limiter]int // how often each was registered
	removed   map[sqllock.Namespace]ratelimit.Stats
	sessions  map[string]*sqllock.Session
	campaigns map[string]*election.Campaign
	findings  map[finding]int
}

// NewSet returns a Set that has nothing yet. Panics have the name of the package
// owner in front.
func NewSet(owner string) *Set {
	s := &Set{
		owner:     owner,
		limiters:  make(map[*ratelimit.Limiter]int),
		removed:   make(map[sqllock.Namespace]ratelimit.Stats),
		sessions:  make(map[string]*sqllock.Session),
		campaigns: make(map[string]*election.Campaign),
		findings:  make(map[finding]int),
	}
	for _, kind := range findingKinds {
		for _, state := range []string{begun, over, terminated} {
			s.findings[finding{word(kind), state}] = 0
		}
	}
	return s
}

// Limiter adds l. A Limiter counts once, however often it is added.
//
// What a removed one has counted stays in the sum of its namespace, as long as
// the namespace has another limiter.
func (s *Set) Limiter(l *ratelimit.Limiter) (remove func()) {
	if l == nil {
		panic(s.owner + ": Limiter needs a *ratelimit.Limiter that is not nil")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limiters[l]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.limiters[l]--; s.limiters[l] == 0 {
			delete(s.limiters, l)
			s.keepLocked(l)
		}
	})
}

// keepLocked keeps what l has counted, which was removed, if other limiters of
// its namespace are there. Without it the sum would fall.
func (s *Set) keepLocked(l *ratelimit.Limiter) {
	namespace := l.Namespace()
	for other := range s.limiters {
		if other.Namespace() == namespace {
			counted := l.Stats()
			counted.Active, counted.Queued, counted.Oldest = 0, 0, 0
			s.removed[namespace] = plus(s.removed[namespace], counted)
			return
		}
	}
	delete(s.removed, namespace)
}

// Session adds session under a name that no other one has.
func (s *Set) Session(name string, session *sqllock.Session) (remove func()) {
	if session == nil {
		panic(s.owner + ": Session needs a *sqllock.Session that is not nil")
	}
	return register(s, "Session", s.sessions, name, session)
}

// Campaign adds c under a name that no other one has.
func (s *Set) Campaign(name string, c *election.Campaign) (remove func()) {
	if c == nil {
		panic(s.owner + ": Campaign needs an *election.Campaign that is not nil")
	}
	return register(s, "Campaign", s.campaigns, name, c)
}

func register[T any](s *Set, caller string, all map[string]T, name string, value T) (remove func()) {
	if name == "" || !utf8.ValidString(name) {
		panic(s.owner + ": " + caller + " needs a name that is UTF-8 and not empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := all[name]; ok {
		panic(s.owner + ": " + caller + " needs a name that is not in use: " + name)
	}
	all[name] = value
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(all, name)
	})
}

// findingKinds are shown from the beginning, so that a rule sees the first
// finding as an increase.
var findingKinds = []lockwatch.FindingKind{
	lockwatch.LateHeartbeat, lockwatch.RegistryNotWritten, lockwatch.WaitCycle, lockwatch.HeldLong, lockwatch.WatchFailed,
}

// A Finding is reported when it begins and when it is over. In between a
// session that Watch has ended is reported once.
const (
	begun      = "begun"
	over       = "over"
	terminated = "terminated"
)

// A finding is what of a Finding its labels hold.
type finding struct{ kind, state string }

// Finding counts f.
func (s *Set) Finding(f lockwatch.Finding) {
	state := begun
	switch {
	case f.Over:
		state = over
	case f.Terminated:
		state = terminated
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings[finding{word(f.Kind), state}]++
}

// word is kind in the spelling of the other labels.
func word(kind lockwatch.FindingKind) string { return strings.ReplaceAll(string(kind), " ", "_") }

// clone returns a copy of s, which can be read without the mutex.
func (s *Set) clone() *Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Set{
		limiters: maps.Clone(s.limiters), removed: maps.Clone(s.removed), sessions: maps.Clone(s.sessions),
		campaigns: maps.Clone(s.campaigns), findings: maps.Clone(s.findings),
	}
}

// plus adds up the figures of two limiters that share their limit.
func plus(a, b ratelimit.Stats) ratelimit.Stats {
	sum := ratelimit.Stats{
		Requests:      make(map[ratelimit.Result]uint64),
		Active:        a.Active + b.Active,
		Queued:        a.Queued + b.Queued,
		Oldest:        max(a.Oldest, b.Oldest),
		LeaseDuration: plusHistogram(a.LeaseDuration, b.LeaseDuration),
		TimeInQueue:   plusHistogram(a.TimeInQueue, b.TimeInQueue),
	}
	for _, result := range results {
		sum.Requests[result] = a.Requests[result] + b.Requests[result]
	}
	return sum
}

// plusHistogram adds up a, which may be the zero value, and b. All histograms of
// limiters have the same bounds.
func plusHistogram(a, b sqllock.Histogram) sqllock.Histogram {
	sum := sqllock.Histogram{Bounds: b.Bounds, Counts: slices.Clone(b.Counts), Count: a.Count + b.Count, Sum: a.Sum + b.Sum}
	for i, n := range a.Counts {
		sum.Counts[i] += n
	}
	return sum
}
