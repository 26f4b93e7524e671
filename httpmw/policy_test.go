package httpmw_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// limitOf returns a policy in which each id has n places.
func limitOf(n int) ratelimit.Option {
	return ratelimit.WithLimit(func(context.Context, string) int { return n })
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
			w := serve(httpmw.NewStack(levels, httpmw.WithRateLimitHeaders()).Handler(http.NotFoundHandler()), request("/"))
			if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("%s: status %d, %s; want %s", tt.name, w.Code, w.Body, tt.want)
			}
			if got := w.Header().Get("RateLimit-Policy"); !strings.Contains(got, tt.quota) {
				t.Errorf("%s: RateLimit-Policy %s, want %s", tt.name, got, tt.quota)
			}
		}
	}
}

// An error may name no level of the stack. WithBusyText stands for each.
func TestDetailOfAStack(t *testing.T) {
	t.Parallel()
	levels, _ := levelsWith(-1)
	none := "As many requests as the limits admit are in progress."
	own := httpmw.WithBusyText("Wait for your export.")
	for _, tt := range []struct {
		err  error
		opts []httpmw.Option
		want string
	}{
		{&ratelimit.BusyError{Namespace: "tenant"}, nil, `The limit "tenant" admits one request`},
		{&ratelimit.BusyError{Namespace: "other"}, nil, none},
		{ratelimit.ErrBusy, nil, none},
		{&ratelimit.BusyError{Namespace: "tenant"}, []httpmw.Option{own}, "Wait for your export."},
		{ratelimit.ErrBusy, []httpmw.Option{own}, "Wait for your export."},
	} {
		w := httptest.NewRecorder()
		httpmw.NewStack(levels, append(tt.opts, httpmw.WithRateLimitHeaders())...).Reject(w, request("/"), tt.err)
		p := httptesting.WantProblem(t, w.Header(), w.Body.String(), http.StatusTooManyRequests)
		if !strings.HasPrefix(p.Detail, tt.want) {
			t.Errorf("%v: %s; want %s", tt.err, p.Detail, tt.want)
		}
	}
}
