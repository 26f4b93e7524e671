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

// over returns a Middleware of s over locks. Each Limiter has the policy.
func (s stack) over(locks sqllock.Locker, policy ...ratelimit.Option) *httpmw.Middleware {
	return s.with(nil, locks, policy...)
}

// with is over with options of the Middleware.
func (s stack) with(opts []httpmw.Option, locks sqllock.Locker, policy ...ratelimit.Option) *httpmw.Middleware {
	var levels []httpmw.Level
	for _, w := range s {
		key := func(r *http.Request) (string, error) {
			found, err := httpmw.Header(user)(r)
			return w.id(found), err
		}
		levels = append(levels, httpmw.Level{Limiter: ratelimit.AtMost(w.size, locks, w.ns, policy...), Key: key})
	}
	if len(levels) == 1 {
		return httpmw.New(levels[0].Limiter, levels[0].Key, opts...)
	}
	return httpmw.NewStack(levels, opts...)
}

// locks returns the locks of s that ctx carries, for ada.
func (s stack) locks(t *testing.T, ctx context.Context) sqllock.Locks {
	t.Helper()
	var locks sqllock.Locks
	for _, w := range s {
		var keys []sqllock.Key
		for i := range w.size {
			keys = append(keys, w.ns.SlotKey(w.id("ada"), i))
		}
		lock, ok := sqllock.FromContext(ctx, keys...)
		if !ok {
			t.Errorf("the context does not carry the lock of %s", w.ns)
		}
		locks = append(locks, lock)
	}
	return locks
}
