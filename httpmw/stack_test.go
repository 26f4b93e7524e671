package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// three are the namespaces of the levels of most tests here.
var three = []sqllock.Namespace{"everybody", "tenant", "user"}

// constant returns a KeyFunc that returns id and err.
func constant(id string, err error) httpmw.KeyFunc {
	return func(*http.Request) (string, error) { return id, err }
}

// Each level decides on a request with the status that it has alone. The
// response names it. No place is left on another level.
func TestStackStatus(t *testing.T) {
	t.Parallel()
	opts := func(o ...ratelimit.Option) []ratelimit.Option { return o }
	wait := ratelimit.WithWait(time.Millisecond, 1)
	open, dry := ratelimit.WithFailOpen(), ratelimit.WithDryRun()
	tests := []struct {
		name   string
		locks  error // of the level's Locker; nil for one that is free
		key    error // of its KeyFunc
		policy []ratelimit.Option
		opts   []httpmw.Option
		want   int
		log    string // part of the line in the log, "" for none
	}{
		{"free", nil, nil, nil, nil, http.StatusNoContent, ""},
		{"full", sqllock.ErrHeld, nil, nil, nil, http.StatusTooManyRequests, ""},
		{"full, conflict", sqllock.ErrHeld, nil, nil, []httpmw.Option{httpmw.WithConflict()}, http.StatusConflict, ""},
		{"full, bypassed", sqllock.ErrHeld, httpmw.ErrBypass, nil, nil, http.StatusNoContent, ""},
		{"full, in a dry run", sqllock.ErrHeld, nil, opts(dry), nil, http.StatusNoContent, ""},
		{"away", sqllock.ErrUnavailable, nil, nil, nil, http.StatusServiceUnavailable, ""},
		{"away, fails open", sqllock.ErrUnavailable, nil, opts(open), nil, http.StatusNoContent, ""},
		{"away while it waits", sqllock.ErrUnavailable, nil, opts(wait), nil, http.StatusServiceUnavailable, ""},
		{"no room", sqllock.ErrCapacity, nil, opts(open), nil, http.StatusServiceUnavailable, ""},
		{"no key", nil, httpmw.ErrNoKey, nil, nil, http.StatusBadRequest, "a request has no key"},
		{"no key, in a dry run", nil, httpmw.ErrNoKey, opts(dry), nil, http.StatusNoContent, "a request has no key"},
		{"bad key", nil, ratelimit.ErrBadID, nil, nil, http.StatusBadRequest, ""},
		{"long key", nil, nil, opts(ratelimit.WithMaxIDLen(1)), nil, http.StatusBadRequest, ""},
		{"no directory", nil, sqllock.ErrUnavailable, nil, nil, http.StatusServiceUnavailable, ""},
		{"its own error", nil, errors.New("oops"), nil, nil, http.StatusInternalServerError, "a KeyFunc failed"},
	}
	for _, tt := range tests {
		for at, ns := range three {
			t.Run(tt.name+"/"+string(ns), func(t *testing.T) {
				t.Parallel()
				var log httptesting.Logbook
				var levels []httpmw.Level
				for i, ns := range three {
					var locks sqllock.Locker = sqllock.NewMemory()
					key := constant("ada-"+strconv.Itoa(i), nil)
					policy := opts(ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return time.Duration(i+2) * time.Second }))
					if i == at {
						if policy = append(policy, tt.policy...); tt.locks != nil {
							locks = locker{tt.locks}
						}
						if tt.key != nil {
							key = constant("", tt.key)
						}
					}
					levels = append(levels, httpmw.Level{Limiter: ratelimit.AtMost(i+1, locks, ns, policy...), Key: key})
				}
				all := append(slices.Clone(tt.opts), httpmw.WithLogger(log.Logger()), httpmw.WithRateLimitHeaders())
				ran := false
				h := httpmw.NewStack(levels, all...).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					ran = true
					w.WriteHeader(http.StatusNoContent)
				}))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, request("/", user+": ada"))
				if w.Code != tt.want || ran != (tt.want == http.StatusNoContent) {
					t.Errorf("status %d, the handler ran: %v; want status %d", w.Code, ran, tt.want)
				}
				for i, level := range levels {
					s := level.Limiter.Stats()
					if s.Active > 0 {
						t.Errorf("%d places of %s are left", s.Active, level.Limiter.Namespace())
					}
					if i != at && ran != (s.Requests[ratelimit.Admitted] == 1) {
						t.Errorf("the handler ran: %v, and %s has admitted %d", ran, level.Limiter.Namespace(), s.Requests[ratelimit.Admitted])
					}
				}
				if !ran {
					checkProblem(t, &http.Response{Header: w.Header(), Body: w.Result().Body}, tt.want)
				}
				if tt.log == "" {
					log.Want(t, "a request", 0)
				} else {
					log.Want(t, "a request", 1, tt.log, "namespace="+string(ns))
				}
				checkNames(t, w, levels[at].Limiter, tt.want == http.StatusTooManyRequests || tt.want == http.StatusConflict)
			})
		}
	}
}

// checkNames checks that a response names full, if it is a rejection of a
// level that was full.
func checkNames(t *testing.T, w *httptest.ResponseRecorder, full *ratelimit.Limiter, busy bool) {
	t.Helper()
	if !busy {
		if got := w.Header().Get("RateLimit"); got != "" {
			t.Errorf("RateLimit %q", got)
		}
		return
	}
	ns, n := string(full.Namespace()), strconv.Itoa(full.Limit())
	after := strconv.Itoa(full.Limit() + 1)
	if got := w.Header().Get("Retry-After"); got != after {
		t.Errorf("Retry-After %s, want that of %s, %s", got, ns, after)
	}
	if got, want := w.Header().Get("RateLimit-Policy"), `"`+ns+`";q=`+n+`;qu="concurrent-requests"`; got != want {
		t.Errorf("RateLimit-Policy %s, want %s", got, want)
	}
	if got, want := w.Header().Get("RateLimit"), `"`+ns+`";r=0;t=`+after; got != want {
		t.Errorf("RateLimit %s, want %s", got, want)
	}
	if body := w.Body.String(); !strings.Contains(body, `The limit \"`+ns+`\" admits `) || !strings.Contains(body, "Try again in "+after+" seconds.") {
		t.Errorf("body %s, want it to name %s", body, ns)
	}
}

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
			locks, called := sqllock.NewMemory(), ""
			var levels []httpmw.Level
			for i, ns := range three {
				levels = append(levels, httpmw.Level{Limiter: ratelimit.OneAtATime(locks, ns), Key: func(*http.Request) (string, error) {
					called += strconv.Itoa(i)
					return "ada", tt.errs[i]
				}})
			}
			var carried []sqllock.Namespace
			h := httpmw.NewStack(levels, httpmw.WithLogger(log.Logger())).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for _, ns := range three {
					if _, ok := sqllock.FromContext(r.Context(), ns.Key("ada")); ok {
						carried = append(carried, ns)
					}
				}
			}))
			h.ServeHTTP(httptest.NewRecorder(), request("/"))
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

// If the KeyFuncs of all levels bypass them, the request is not limited at all:
// its handler has the server's own ResponseWriter and context.
func TestStackBypassed(t *testing.T) {
	t.Parallel()
	var levels []httpmw.Level
	for _, ns := range three {
		levels = append(levels, httpmw.Level{Limiter: ratelimit.OneAtATime(locker{sqllock.ErrHeld}, ns), Key: constant("", httpmw.ErrBypass)})
	}
	m := httpmw.NewStack(levels)
	w, r := httptest.NewRecorder(), request("/")
	m.Handler(http.HandlerFunc(func(inner http.ResponseWriter, got *http.Request) {
		if inner != w || got != r {
			t.Error("the handler has a writer or a request of the Middleware's")
		}
	})).ServeHTTP(w, r)
	locks, err := m.AcquireAll(r)
	if err != nil || len(locks) != 0 || locks.Err() != nil || locks.Unlock() != nil {
		t.Errorf("AcquireAll: %v, %v; want no locks", locks, err)
	}
}

// The loss of the lock of any level ends the handler's context. The response of
// a handler that has written nothing is 503. In a dry run of that level nothing
// happens.
func TestStackLosesOneLock(t *testing.T) {
	t.Parallel()
	for at, ns := range three {
		for name, policy := range map[string][]ratelimit.Option{"in earnest": nil, "dry run": {ratelimit.WithDryRun()}} {
			t.Run(string(ns)+"/"+name, func(t *testing.T) {
				t.Parallel()
				var levels []httpmw.Level
				lost := sqllock.NewMemory()
				for i, ns := range three {
					l := ratelimit.OneAtATime(sqllock.NewMemory(), ns)
					if i == at {
						l = ratelimit.OneAtATime(lost, ns, policy...)
					}
					levels = append(levels, httpmw.Level{Limiter: l, Key: constant("ada", nil)})
				}
				var cause error
				h := httpmw.NewStack(levels).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if n := lost.Lose(); n != 1 {
						t.Errorf("%d locks were lost", n)
					}
					if r.Context().Err() != nil {
						cause = context.Cause(r.Context())
					}
				}))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, request("/"))
				want, wantCause := http.StatusServiceUnavailable, sqllock.ErrLost
				if policy != nil {
					want, wantCause = http.StatusOK, nil
				}
				if w.Code != want || !errors.Is(cause, wantCause) {
					t.Errorf("status %d, cause %v; want %d, %v", w.Code, cause, want, wantCause)
				}
				for _, level := range levels {
					if n := level.Limiter.Stats().Active; n > 0 {
						t.Errorf("%d places of %s are left", n, level.Limiter.Namespace())
					}
				}
			})
		}
	}
}

// While the handler still holds the lock of one level, the last byte is kept
// back. The lock of a dry run does not count.
func TestStackUnlockedInPart(t *testing.T) {
	t.Parallel()
	for at, ns := range three {
		for name, policy := range map[string][]ratelimit.Option{"in earnest": nil, "dry run": {ratelimit.WithDryRun()}} {
			t.Run(string(ns)+"/"+name, func(t *testing.T) {
				t.Parallel()
				locks := sqllock.NewMemory()
				var levels []httpmw.Level
				for i, ns := range three {
					l := ratelimit.OneAtATime(locks, ns)
					if i == at {
						l = ratelimit.OneAtATime(locks, ns, policy...)
					}
					levels = append(levels, httpmw.Level{Limiter: l, Key: constant("ada", nil)})
				}
				w := httptest.NewRecorder()
				httpmw.NewStack(levels).Handler(http.HandlerFunc(func(inner http.ResponseWriter, r *http.Request) {
					lengthy([]byte("done"), true)(inner, r)
					for i, ns := range three {
						if i == at {
							continue
						}
						lock, _ := sqllock.FromContext(r.Context(), ns.Key("ada"))
						if err := lock.Unlock(); err != nil {
							t.Error(err)
						}
					}
					flush(inner)
					if got, want := w.Body.String() == "done", policy != nil; got != want {
						t.Errorf("the client has %q, want all of it: %v", w.Body, want)
					}
				})).ServeHTTP(w, request("/"))
				if got := w.Body.String(); got != "done" {
					t.Errorf("body %q, want done", got)
				}
			})
		}
	}
}

// FromContext without keys returns the lock of the last level.
func TestStackInContext(t *testing.T) {
	t.Parallel()
	levels := stacks["three levels"]
	ran := false
	levels.over(sqllock.NewMemory()).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		locks := levels.locks(t, r.Context())
		if last, ok := sqllock.FromContext(r.Context()); !ok || last != locks[len(locks)-1] {
			t.Error("the last lock is not that of the last level")
		}
		if err := locks.Err(); err != nil {
			t.Error(err)
		}
	})).ServeHTTP(httptest.NewRecorder(), request("/", user+": ada"))
	if !ran {
		t.Error("the handler did not run")
	}
}

// A panic in an Observer at the end of a hold reaches the server, as with one
// limit. All places are free then, and the process lives.
func TestStackObserverPanics(t *testing.T) {
	t.Parallel()
	for at := range three {
		locks := sqllock.NewMemory()
		var levels []httpmw.Level
		for i, ns := range three {
			var policy []ratelimit.Option
			if i == at {
				policy = append(policy, onRelease(func() { panic("observer") }))
			}
			levels = append(levels, httpmw.Level{Limiter: ratelimit.OneAtATime(locks, ns, policy...), Key: constant("ada", nil)})
		}
		func() {
			defer func() {
				if p := recover(); p != "observer" {
					t.Errorf("level %d: recovered %v", at, p)
				}
			}()
			httpmw.NewStack(levels).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(httptest.NewRecorder(), request("/"))
		}()
		for _, ns := range three {
			lock, err := locks.TryLock(t.Context(), ns.Key("ada"))
			if err != nil {
				t.Errorf("level %d: the place of %s is left: %v", at, ns, err)
			}
			_ = lock.Unlock()
		}
	}
}

// Acquire returns one lock, which cannot stand for several levels.
func TestAcquireOnAStack(t *testing.T) {
	t.Parallel()
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "httpmw: Acquire needs a Middleware of one level") {
			t.Errorf("recovered %q", text)
		}
	}()
	_, _ = stacks["three levels"].over(sqllock.NewMemory()).Acquire(request("/", user+": ada"))
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
			if got := locks[i].Key(); got != w.ns.Key(w.id("ada")) {
				t.Errorf("lock %d is not that of %s", i, w.ns)
			}
		}
		ctx, cancel := locks.Bind(t.Context())
		defer cancel()
		if got := levels.locks(t, ctx); !slices.Equal(got, locks) {
			t.Error("the context carries other locks")
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

// NewStack keeps a copy of the levels.
func TestStackIsCopied(t *testing.T) {
	t.Parallel()
	levels := []httpmw.Level{
		{Limiter: ratelimit.OneAtATime(sqllock.NewMemory(), "user"), Key: httpmw.Header(user)},
		{Limiter: ratelimit.OneAtATime(sqllock.NewMemory(), "tenant"), Key: httpmw.Header(user)},
	}
	m := httpmw.NewStack(levels)
	clear(levels)
	locks, err := m.AcquireAll(request("/", user+": ada"))
	if err != nil || len(locks) != 2 {
		t.Fatal(locks, err)
	}
	_ = locks.Unlock()
}
