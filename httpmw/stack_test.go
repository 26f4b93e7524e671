package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The KeyFuncs are called in order, each once, and those behind an error are
// not called.
func TestStackKeyFuncs(t *testing.T) {
	t.Parallel()
	own := errors.New("oops")
	tests := []struct {
		name    string
		errs    [3]error
		called  string
		decided string // the namespace whose Limiter counts a rejection
	}{
		{"all", [3]error{}, "012", ""},
		{"the first fails", [3]error{own}, "0", "everybody"},
		{"the second fails", [3]error{nil, own}, "01", "tenant"},
		{"the last fails", [3]error{nil, nil, own}, "012", "user"},
		{"two fail", [3]error{nil, httpmw.ErrNoKey, own}, "01", "tenant"},
		{"one is bypassed", [3]error{httpmw.ErrBypass}, "012", ""},
		{"one is bypassed, another fails", [3]error{httpmw.ErrBypass, nil, own}, "012", "user"},
		{"all are bypassed", [3]error{httpmw.ErrBypass, httpmw.ErrBypass, httpmw.ErrBypass}, "012", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log httptesting.Logbook
			levels, _ := levelsWith(-1)
			called := ""
			for i := range levels {
				levels[i].Key = func(*http.Request) (string, error) {
					called += strconv.Itoa(i)
					return "ada", tt.errs[i]
				}
			}
			var carried []sqllock.Namespace
			serve(httpmw.NewStack(levels, httpmw.WithLogger(log.Logger())).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for _, ns := range three {
					if _, ok := sqllock.FromContext(r.Context(), ns.Key("ada")); ok {
						carried = append(carried, ns)
					}
				}
			})), request("/"))
			if called != tt.called {
				t.Errorf("called %s, want %s", called, tt.called)
			}
			for i, level := range levels {
				failed := level.Limiter.Stats().Requests[ratelimit.Failed]
				if want := string(three[i]) == tt.decided; (failed == 1) != want || failed > 1 {
					t.Errorf("%s has counted %d rejections", three[i], failed)
				}
				if want := tt.decided == "" && tt.errs[i] == nil; slices.Contains(carried, three[i]) != want {
					t.Errorf("the context carries the lock of %s: %v, want %v", three[i], !want, want)
				}
			}
		})
	}
}

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
			if got := w.Body.String() == "done"; got != dry {
				t.Errorf("the client has %q, want all of it: %v", w.Body, dry)
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
	eachStack(t, func(t *testing.T, levels stack) {
		m := levels.over(sqllock.NewMemory())
		locks, err := m.AcquireAll(request("/", user+": ada"))
		if err != nil || len(locks) != len(levels) || locks.Err() != nil {
			t.Fatalf("%d locks, %v, %v", len(locks), locks.Err(), err)
		}
		for i, w := range levels {
			if !slices.Contains(w.keys("ada"), locks[i].Key()) {
				t.Errorf("lock %d is not that of %s", i, w.ns)
			}
		}
		ctx, cancel := locks.Bind(t.Context())
		defer cancel()
		if got := levels.locks(t, ctx); !slices.Equal(got, locks) {
			t.Error("the context carries other locks")
		}
		if last, ok := sqllock.FromContext(ctx); !ok || last != locks[len(locks)-1] {
			t.Error("without keys FromContext does not return the lock of the last level")
		}
		if _, err := m.AcquireAll(request("/", user+": ada")); !errors.Is(err, ratelimit.ErrBusy) {
			t.Errorf("the second request: %v", err)
		}
		if _, err := m.AcquireAll(request("/")); !errors.Is(err, httpmw.ErrNoKey) {
			t.Errorf("without a key: %v", err)
		}
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
