package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// eachLevel runs f for a stack of one level and for each of three levels, which
// is in earnest or in a dry run.
func eachLevel(t *testing.T, f func(t *testing.T, levels []httpmw.Level, locks []*sqllock.Memory, at int, dry bool)) {
	for _, size := range []int{1, len(three)} {
		for at := range size {
			for name, policy := range map[string][]ratelimit.Option{"in earnest": nil, "dry run": {ratelimit.WithDryRun()}} {
				t.Run(strconv.Itoa(at)+" of "+strconv.Itoa(size)+", "+name, func(t *testing.T) {
					t.Parallel()
					levels, locks := levelsWith(at, policy...)
					f(t, levels[:size], locks[:size], at, policy != nil)
				})
			}
		}
	}
}

// The loss of the lock of any level ends the handler's context. The response of
// a handler that has written nothing is 503. In a dry run of that level nothing
// happens.
func TestStackLosesOneLock(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, levels []httpmw.Level, locks []*sqllock.Memory, at int, dry bool) {
		var cause error
		w := serve(httpmw.NewStack(levels).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if n := locks[at].Lose(); n != 1 {
				t.Errorf("%d locks were lost", n)
			}
			if r.Context().Err() != nil {
				cause = context.Cause(r.Context())
			}
		})), request("/"))
		want, wantCause := http.StatusServiceUnavailable, sqllock.ErrLost
		if dry {
			want, wantCause = http.StatusOK, nil
		}
		if w.Code != want || !errors.Is(cause, wantCause) {
			t.Errorf("status %d, cause %v; want %d, %v", w.Code, cause, want, wantCause)
		}
		wantFree(t, levels)
	})
}

// While the handler still holds the lock of one level, the last byte is kept
// back. The lock of a dry run does not count.
func TestStackUnlockedInPart(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, levels []httpmw.Level, _ []*sqllock.Memory, at int, dry bool) {
		dry = dry && len(levels) > 1 // a request without any other lock is not unlocked at all
		w := httptest.NewRecorder()
		httpmw.NewStack(levels).Handler(http.HandlerFunc(func(inner http.ResponseWriter, r *http.Request) {
			lengthy([]byte("done"))(inner, r)
			for i, level := range levels {
				if i == at {
					continue
				}
				lock, _ := sqllock.FromContext(r.Context(), level.Limiter.Namespace().Key("ada"))
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
			}
			flush(inner)
			if got := w.Body.String() == "done"; got != dry || r.Context().Err() != nil {
				t.Errorf("the client has %q, want all of it: %v; the context: %v", w.Body, dry, r.Context().Err())
			}
		})).ServeHTTP(w, request("/"))
		if got := w.Body.String(); got != "done" {
			t.Errorf("body %q, want done", got)
		}
	})
}

// AcquireAll returns the lock of each level that limits the request.
func TestAcquireAll(t *testing.T) {
	t.Parallel()
	levels, _ := levelsWith(-1)
	m := httpmw.NewStack(append(levels, httpmw.Level{Limiter: levels[0].Limiter, Key: constant("", httpmw.ErrBypass)}))
	locks, err := m.AcquireAll(request("/"))
	if err != nil || len(locks) != 3 || locks.Err() != nil {
		t.Fatalf("%d locks, %v, %v", len(locks), locks.Err(), err)
	}
	ctx, cancel := locks.Bind(t.Context())
	defer cancel()
	for i, level := range levels {
		if lock, _ := sqllock.FromContext(ctx, level.Limiter.Namespace().Key("ada")); lock != locks[i] {
			t.Errorf("the context carries another lock of level %d", i)
		}
	}
	if last, ok := sqllock.FromContext(ctx); !ok || last != locks[len(locks)-1] {
		t.Error("without keys FromContext does not return the lock of the last level")
	}
	if _, err := m.AcquireAll(request("/")); !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("the second request: %v", err)
	}
	if _, err := stacked(sqllock.NewMemory()).AcquireAll(request("/")); !errors.Is(err, httpmw.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
	if err := locks.Unlock(); err != nil {
		t.Error(err)
	}
}
