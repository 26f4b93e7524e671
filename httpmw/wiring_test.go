package httpmw_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// put puts m around h, on a mux.
func put(m *httpmw.Middleware, h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /export/{id}", m.Handler(h))
	mux.Handle("GET /other/{id}", m.Handler(h))
	return mux
}

// A route without keys is reported in the log, once a minute.
func TestReportsNoKey(t *testing.T) {
	t.Parallel()
	around := func(m *httpmw.Middleware, h http.Handler) http.Handler { return m.Handler(put(m, h)) }
	tests := []struct {
		name string
		key  httpmw.KeyFunc
		wrap func(*httpmw.Middleware, http.Handler) http.Handler
		want []string
	}{
		{"before authentication", httpmw.FromContext(identity), put, []string{"not in the context", `route="GET /export/{id}"`}},
		{"around the mux", httpmw.PathValue("id"), around, []string{"no path value id"}},
		{"an empty id", empty, put, []string{"no key in the request"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log httptesting.Logbook
				h := tt.wrap(httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), tt.key, httpmw.WithLogger(log.Logger())), http.NotFoundHandler())
				ask := func() {
					t.Helper()
					w := httptest.NewRecorder()
					h.ServeHTTP(w, request("/export/ada?user=ada"))
					if w.Code != http.StatusBadRequest {
						t.Errorf("status %d, want 400", w.Code)
					}
				}
				parts := append(tt.want, "level=WARN", "httpmw: a request has no key", "authentication", "namespace=export")
				ask()
				log.Want(t, "the first request", 1, parts...)
				ask()
				time.Sleep(time.Minute - 1)
				ask()
				log.Want(t, "within the minute", 0)
				time.Sleep(time.Nanosecond)
				ask()
				log.Want(t, "after the minute", 1, append(parts, "times=3")...)
			})
		})
	}
}

// Each route has its own line.
func TestReportsEachRoute(t *testing.T) {
	t.Parallel()
	var log httptesting.Logbook
	h := put(httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), empty, httpmw.WithLogger(log.Logger())), http.NotFoundHandler())
	for _, route := range []string{"/export/{id}", "/other/{id}"} {
		h.ServeHTTP(httptest.NewRecorder(), request(strings.Replace(route, "{id}", "ada", 1)))
		log.Want(t, route, 1, route)
	}
}

// A request that needs one limit twice is reported in the log.
func TestReportsTwice(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		make func(sqllock.Locker) *ratelimit.Limiter
		opts []ratelimit.Option
		want int
	}{
		{"one at a time", func(l sqllock.Locker) *ratelimit.Limiter { return ratelimit.OneAtATime(l, "export") }, nil, http.StatusTooManyRequests},
		{"two at a time", func(l sqllock.Locker) *ratelimit.Limiter { return ratelimit.AtMost(2, l, "export") }, nil, http.StatusTeapot},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log httptesting.Logbook
				locks := sqllock.NewMemory()
				// Two Middlewares, each with a Limiter of its own, share the
				// limit by its namespace.
				outer := httpmw.New(tt.make(locks), httpmw.Header(user), httpmw.WithLogger(log.Logger()))
				inner := httpmw.New(tt.make(locks), httpmw.Header(user), httpmw.WithLogger(log.Logger()))
				between := limited(sqllock.NewMemory()) // of another namespace's locks
				teapot := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
				h := put(outer, between.Handler(inner.Handler(teapot)))
				for range 2 {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, request("/export/ada", user+": ada"))
					if w.Code != tt.want {
						t.Errorf("status %d, want %d", w.Code, tt.want)
					}
				}
				log.Want(t, "two requests", 1, "level=ERROR", "two places of one limit", "namespace=export", `route="GET /export/{id}"`)
				time.Sleep(time.Minute)
				h.ServeHTTP(httptest.NewRecorder(), request("/export/ada", user+": ada"))
				log.Want(t, "after a minute", 1, "times=2")
			})
		})
	}
}

// Four things are no mistake and are not reported: two limits, one limit for
// two ids, a lock that was released, and a limit that is full.
func TestReportsNothingElse(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	var log httptesting.Logbook
	byUser := httpmw.New(ratelimit.OneAtATime(locks, "export"), httpmw.Header(user), httpmw.WithLogger(log.Logger()))
	byPath := httpmw.New(ratelimit.OneAtATime(locks, "export"), httpmw.PathValue("id"), httpmw.WithLogger(log.Logger()))
	other := httpmw.New(ratelimit.OneAtATime(locks, "other"), httpmw.Header(user), httpmw.WithLogger(log.Logger()))
	teapot := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	again := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock, _ := sqllock.FromContext(r.Context())
		_ = lock.Unlock()
		byUser.Handler(teapot).ServeHTTP(w, r)
	})
	held, err := ratelimit.OneAtATime(locks, "export").Acquire(t.Context(), "eve")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()
	tests := []struct {
		name string
		h    http.Handler
		user string
		want int
	}{
		{"two limits", put(other, byUser.Handler(teapot)), "ada", http.StatusTeapot},
		{"two ids", put(byUser, byPath.Handler(teapot)), "ada", http.StatusTeapot},
		{"given back", put(byUser, again), "ada", http.StatusTeapot},
		{"full", put(byUser, teapot), "eve", http.StatusTooManyRequests},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		tt.h.ServeHTTP(w, request("/export/x", user+": "+tt.user))
		if w.Code != tt.want {
			t.Errorf("%s: status %d, want %d", tt.name, w.Code, tt.want)
		}
		log.Want(t, tt.name, 0)
	}
}

// The error of a service's KeyFunc is in the log, and not in the response.
func TestReportsKeyFunc(t *testing.T) {
	t.Parallel()
	fails := func(err error) httpmw.KeyFunc {
		return func(*http.Request) (string, error) { return "", err }
	}
	tests := []struct {
		name  string
		err   error
		lines int
	}{
		{"its own", errors.New("directory: connection refused"), 1},
		{"its own deadline", context.DeadlineExceeded, 1},
		{"away", sqllock.ErrUnavailable, 0},
		{"bad id", ratelimit.ErrBadID, 0},
		{"bypass", httpmw.ErrBypass, 0},
	}
	for _, tt := range tests {
		var log httptesting.Logbook
		w := httptest.NewRecorder()
		h := put(httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), fails(tt.err), httpmw.WithLogger(log.Logger())), http.NotFoundHandler())
		h.ServeHTTP(w, request("/export/ada"))
		if strings.Contains(w.Body.String(), tt.err.Error()) {
			t.Errorf("%s: the client reads the error: %s", tt.name, w.Body)
		}
		log.Want(t, tt.name, tt.lines, "level=ERROR", "httpmw: a KeyFunc failed", tt.err.Error(), "namespace=export", `route="GET /export/{id}"`)
	}
}

// Without WithLogger reports go to the current default log.
func TestReportsToDefault(t *testing.T) {
	var log httptesting.Logbook
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), empty)
	before := slog.Default()
	slog.SetDefault(log.Logger())
	t.Cleanup(func() { slog.SetDefault(before) })
	put(m, http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), request("/export/ada"))
	log.Want(t, "the first request", 1, "a request has no key")
}
