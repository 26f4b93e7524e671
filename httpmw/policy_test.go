package httpmw_test

import (
	"context"
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

// limitOf returns a policy in which each id has n places.
func limitOf(n int) ratelimit.Option {
	return ratelimit.WithLimit(func(context.Context, string) int { return n })
}

// A policy that fails is a fault of the server: 500, and a line in the log once
// a minute, which names the limit.
func TestReportsPolicy(t *testing.T) {
	t.Parallel()
	unknown := ratelimit.WithClasses(func(context.Context) string { return "ada" }, ratelimit.Class{Name: "interactive"})
	for name, policy := range map[string]ratelimit.Option{"no limit": limitOf(0), "no class": unknown} {
		for at, ns := range three {
			synctest.Test(t, func(t *testing.T) {
				var log httptesting.Logbook
				locks := sqllock.NewMemory()
				var levels []httpmw.Level
				for i, ns := range three {
					l := ratelimit.AtMost(2, locks, ns)
					if i == at {
						l = ratelimit.AtMost(2, locks, ns, policy)
					}
					levels = append(levels, httpmw.Level{Limiter: l, Key: constant("ada", nil)})
				}
				m := httpmw.NewStack(levels, httpmw.WithLogger(log.Logger()))
				ask := func() {
					w := httptest.NewRecorder()
					put(m, http.NotFoundHandler()).ServeHTTP(w, request("/export/x"))
					if w.Code != http.StatusInternalServerError || w.Header().Get("Retry-After") != "" {
						t.Errorf("%s: status %d, want 500", name, w.Code)
					}
					checkProblem(t, w.Result(), http.StatusInternalServerError)
				}
				ask()
				log.Want(t, name, 1, "level=ERROR", "the policy of a limit failed", "bad policy", string(ns), `route="GET /export/{id}"`)
				ask()
				log.Want(t, "within the minute", 0)
				time.Sleep(time.Minute)
				ask()
				log.Want(t, "after the minute", 1, "times=2")
			})
		}
	}
}

// A rejection names the limit that the id has, and not the highest limit that
// an id may have.
func TestDetailNamesTheLimitOfTheID(t *testing.T) {
	t.Parallel()
	reserved := ratelimit.WithClasses(func(context.Context) string { return "" }, ratelimit.Class{Name: "interactive", Reserved: 2})
	tests := []struct {
		name   string
		policy ratelimit.Option
		size   int
		want   string
		quota  string
	}{
		{"one", limitOf(1), 1, `The limit \"user\" admits one request at a time, and another request is in progress.`, "q=1;"},
		{"three", limitOf(3), 3, `The limit \"user\" admits 3 requests at a time, and 3 are in progress.`, "q=3;"},
		{"more than the highest", limitOf(9), 5, `The limit \"user\" admits 5 requests at a time, and 5 are in progress.`, "q=5;"},
		{"some are reserved", reserved, 3, `The limit \"user\" admits 3 requests at a time, and 3 are in progress.`, "q=3;"},
	}
	for _, tt := range tests {
		l := ratelimit.AtMost(5, sqllock.NewMemory(), "user", tt.policy)
		for range tt.size {
			lock, err := l.Acquire(t.Context(), "ada")
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Unlock()
		}
		total := httpmw.Level{Limiter: ratelimit.AtMost(50, sqllock.NewMemory(), "total"), Key: constant("all", nil)}
		user := httpmw.Level{Limiter: l, Key: constant("ada", nil)}
		for _, levels := range [][]httpmw.Level{{user}, {total, user}} {
			w := httptest.NewRecorder()
			httpmw.NewStack(levels, httpmw.WithRateLimitHeaders()).Handler(http.NotFoundHandler()).ServeHTTP(w, request("/"))
			if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("%s: status %d, %s; want %s", tt.name, w.Code, w.Body, tt.want)
			}
			if got := w.Header().Get("RateLimit-Policy"); !strings.Contains(got, tt.quota) {
				t.Errorf("%s: RateLimit-Policy %s, want %s", tt.name, got, tt.quota)
			}
		}
	}
}

// WithBusyText stands for each level, and also if an error names none of them.
func TestDetailOfAStack(t *testing.T) {
	t.Parallel()
	levels := []httpmw.Level{
		{Limiter: ratelimit.AtMost(2, locker{sqllock.ErrHeld}, "total"), Key: constant("all", nil)},
		{Limiter: ratelimit.OneAtATime(sqllock.NewMemory(), "user"), Key: constant("ada", nil)},
	}
	full := func(ns string) error { return &ratelimit.BusyError{Namespace: ns, RetryAfter: time.Second} }
	for _, tt := range []struct {
		name string
		err  error
		opts []httpmw.Option
		want string
	}{
		{"the first", full("total"), nil, `The limit \"total\" admits 2 requests`},
		{"the last", full("user"), nil, `The limit \"user\" admits one request`},
		{"another", full("other"), nil, "As many requests as the limits admit are in progress."},
		{"no name", ratelimit.ErrBusy, nil, "As many requests as the limits admit are in progress."},
		{"own text", full("total"), []httpmw.Option{httpmw.WithBusyText("Wait for your export.")}, "Wait for your export."},
		{"own text, no name", ratelimit.ErrBusy, []httpmw.Option{httpmw.WithBusyText("Wait for your export.")}, "Wait for your export."},
	} {
		w := httptest.NewRecorder()
		httpmw.NewStack(levels, append(tt.opts, httpmw.WithRateLimitHeaders())...).Reject(w, request("/"), tt.err)
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s: status %d, %s; want %s", tt.name, w.Code, w.Body, tt.want)
		}
		checkProblem(t, w.Result(), w.Code)
	}
}
