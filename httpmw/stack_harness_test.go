package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// stacked returns a Middleware of three levels over locks, each with the policy.
// The middle one admits one request at a time for each user. The others have
// room for the requests of any test.
func stacked(locks sqllock.Locker, policy ...ratelimit.Option) *httpmw.Middleware {
	levels := []httpmw.Level{
		{Limiter: ratelimit.AtMost(7, locks, "all", policy...), Key: constant("everybody", nil)},
		{Limiter: ratelimit.OneAtATime(locks, "export", policy...), Key: httpmw.Header(user)},
		{Limiter: ratelimit.AtMost(5, locks, "tenant", policy...), Key: constant("everybody", nil)},
	}
	m := httpmw.NewStack(levels)
	clear(levels) // NewStack has copied them
	return m
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
