package httpmw_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// losing is a Memory whose locks end the contexts bound to them when they are
// told to be lost.
type losing struct {
	*sqllock.Memory
	taken chan *sqllock.Lock
}

func (l losing) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	lock, err := l.Memory.TryLock(ctx, key)
	l.taken <- lock
	return lock, err
}

// The loss of a lock ends a request's context, but not in a dry run, which must
// not harm live traffic.
func TestLossInDryRun(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		policy []ratelimit.Option
		ends   bool
	}{
		{"in earnest", nil, true},
		{"dry run", []ratelimit.Option{ratelimit.WithDryRun()}, false},
	} {
		locks := losing{sqllock.NewMemory(), make(chan *sqllock.Lock, 1)}
		l := ratelimit.OneAtATime(locks, "export", tt.policy...)
		h := httpmw.New(l, httpmw.Header(user)).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			(<-locks.taken).Cancel(sqllock.ErrLost)
			if ended := r.Context().Err() != nil; ended != tt.ends {
				t.Errorf("%s: the request's context has ended: %v, want %v", tt.name, ended, tt.ends)
			}
		}))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(user, "ada")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if lock, err := locks.Memory.TryLock(t.Context(), sqllock.Namespace("export").Key("ada")); err != nil {
			t.Errorf("%s: the lock was not given back: %v", tt.name, err)
		} else {
			_ = lock.Unlock()
		}
	}
}
