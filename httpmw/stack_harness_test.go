package httpmw_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A stack is the levels with which a test runs. One of them admits one request
// at a time for each user. The others have room for the requests of any test.
type stack []wide

// wide is a level of AtMost for one id or, narrow, of OneAtATime for each user.
type wide struct {
	ns   sqllock.Namespace
	size int
}

// stacks are a single limit and three levels. The narrow one is in the middle,
// so that a test would notice if only the first or the last counted.
var stacks = map[string]stack{
	"one limit":    {{"export", 1}},
	"three levels": {{"all", 7}, {"export", 1}, {"tenant", 5}},
}

// eachStack runs f with a single limit and with three levels.
func eachStack(t *testing.T, f func(t *testing.T, s stack)) {
	t.Helper()
	for name, s := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, s)
		})
	}
}

// id returns the id of w for a user.
func (w wide) id(user string) string {
	if w.size == 1 {
		return user
	}
	return "everybody"
}

// keys returns the keys of the places of w for a user.
func (w wide) keys(user string) (keys []sqllock.Key) {
	for i := range w.size {
		keys = append(keys, w.ns.SlotKey(w.id(user), i))
	}
	return keys
}

// over returns a Middleware of s over locks. Each Limiter has the policy.
func (s stack) over(locks sqllock.Locker, policy ...ratelimit.Option) *httpmw.Middleware {
	var levels []httpmw.Level
	for _, w := range s {
		key := func(r *http.Request) (string, error) {
			found, err := httpmw.Header(user)(r)
			return w.id(found), err
		}
		levels = append(levels, httpmw.Level{Limiter: ratelimit.AtMost(w.size, locks, w.ns, policy...), Key: key})
	}
	m := httpmw.NewStack(levels)
	clear(levels) // NewStack has copied them
	return m
}

// locks returns the locks of s that ctx carries, for ada.
func (s stack) locks(t *testing.T, ctx context.Context) sqllock.Locks {
	t.Helper()
	return s.locksOf(t, ctx, "ada")
}

// locksOf is locks for another user.
func (s stack) locksOf(t *testing.T, ctx context.Context, who string) sqllock.Locks {
	t.Helper()
	var locks sqllock.Locks
	for _, w := range s {
		lock, ok := sqllock.FromContext(ctx, w.keys(who)...)
		if !ok {
			t.Errorf("the context does not carry the lock of %s", w.ns)
		}
		locks = append(locks, lock)
	}
	return locks
}

// three are the namespaces of levels.
var three = []sqllock.Namespace{"everybody", "tenant", "user"}

// levelsWith returns levels of one at a time for ada, each over locks of its
// own. The one in place at has the policy.
func levelsWith(at int, policy ...ratelimit.Option) (levels []httpmw.Level, locks []*sqllock.Memory) {
	for i, ns := range three {
		var opts []ratelimit.Option
		if i == at {
			opts = policy
		}
		m := sqllock.NewMemory()
		locks = append(locks, m)
		levels = append(levels, httpmw.Level{Limiter: ratelimit.OneAtATime(m, ns, opts...), Key: constant("ada", nil)})
	}
	return levels, locks
}

// constant returns a KeyFunc that returns id and err.
func constant(id string, err error) httpmw.KeyFunc {
	return func(*http.Request) (string, error) { return id, err }
}

// wantFree fails the test unless no place of levels is taken.
func wantFree(t *testing.T, levels []httpmw.Level) {
	t.Helper()
	for _, level := range levels {
		if n := level.Limiter.Stats().Active; n > 0 {
			t.Errorf("%d places of %s are left", n, level.Limiter.Namespace())
		}
	}
}
