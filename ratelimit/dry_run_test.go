package ratelimit_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// No request depends on the lock of a dry run, in whichever way it got the
// lock.
func TestDryRunDetaches(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		opts     []ratelimit.Option
		detached bool
	}{
		{"in earnest", nil, false},
		{"dry run", []ratelimit.Option{ratelimit.WithDryRun()}, true},
	} {
		for _, slots := range []int{1, 2} {
			lock := must(t, ratelimit.AtMost(slots, sqllock.NewMemory(), "export", tt.opts...), "ada")
			ctx, cancel := lock.Bind(t.Context())
			_, carried := sqllock.FromContext(ctx)
			lock.Cancel(sqllock.ErrLost)
			if ended := ctx.Err() != nil; ended == tt.detached || carried == tt.detached {
				t.Errorf("%s, %d slots: the request's context carries the lock: %v, ends with it: %v", tt.name, slots, carried, ended)
			}
			cancel()
		}
	}
}
