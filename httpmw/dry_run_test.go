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

// losing is a Memory whose locks can be lost by the test.
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

// The loss does not end a context of Acquire and Bind either.
func TestAcquireInDryRun(t *testing.T) {
	t.Parallel()
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithDryRun())
	lock, err := httpmw.New(l, httpmw.Header(user)).Acquire(request("/", user+": ada"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	ctx, cancel := lock.Bind(t.Context())
	defer cancel()
	lock.Cancel(sqllock.ErrLost)
	if err := ctx.Err(); err != nil {
		t.Errorf("the request's context has ended: %v", context.Cause(ctx))
	}
	if _, ok := sqllock.FromContext(ctx); ok {
		t.Error("the request's context carries a lock on which it does not depend")
	}
}

// A dry run inside of another Middleware does not hide that one's lock, whether
// the dry run has a lock of its own or not.
func TestDryRunInsideAnother(t *testing.T) {
	t.Parallel()
	for name, inner := range map[string]sqllock.Locker{
		"free": sqllock.NewMemory(),
		"busy": locker{sqllock.ErrHeld},
	} {
		ran := false
		trial := httpmw.New(ratelimit.OneAtATime(inner, "upload", ratelimit.WithDryRun()), httpmw.Header(user))
		h := limited(sqllock.NewMemory()).Handler(trial.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran = true
			lock, ok := sqllock.FromContext(r.Context())
			if want := sqllock.Namespace("export").Key("ada"); !ok || lock.Key() != want || lock.Err() != nil {
				t.Errorf("%s: the lock in the context is %v, want that of the outer limit", name, lock.Key())
			}
			lock.Cancel(sqllock.ErrLost)
			if r.Context().Err() == nil {
				t.Errorf("%s: the loss of the outer lock does not show", name)
			}
		})))
		h.ServeHTTP(httptest.NewRecorder(), request("/", user+": ada"))
		if !ran {
			t.Errorf("%s: refused", name)
		}
	}
}
