package httpmw_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The loss of a lock of a dry run, which must not harm live traffic, does not
// end a context of Acquire and Bind. TestStackLosesOneLock shows that for
// Handler.
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
		"busy": httptesting.Failing{Err: sqllock.ErrHeld},
	} {
		ran := false
		trial := httpmw.New(ratelimit.OneAtATime(inner, "upload", ratelimit.WithDryRun()), httpmw.Header(user))
		serve(limited(sqllock.NewMemory()).Handler(trial.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran = true
			lock, ok := sqllock.FromContext(r.Context())
			if want := sqllock.Namespace("export").Key("ada"); !ok || lock.Key() != want || lock.Err() != nil {
				t.Errorf("%s: the lock in the context is %v, want that of the outer limit", name, lock.Key())
			}
			lock.Cancel(sqllock.ErrLost)
			if r.Context().Err() == nil {
				t.Errorf("%s: the loss of the outer lock does not show", name)
			}
		}))), request("/", user+": ada"))
		if !ran {
			t.Errorf("%s: refused", name)
		}
	}
}
