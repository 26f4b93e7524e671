package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

const (
	noKeyLog  = "a request has no key"
	faultLog  = "a KeyFunc failed"
	policyLog = "the policy of a limit failed"
	problem   = "https://api.example/problems/busy"
)

// A statusTest is a request, and what one level does with it.
type statusTest struct {
	name   string
	locks  error  // of the level's Locker; nil for one that is free
	key    error  // of its KeyFunc
	id     string // of its KeyFunc; "" for one that is good
	policy []ratelimit.Option
	opts   []httpmw.Option
	want   int
	log    string // part of the line in the log, "" for none
}

var statusTests = func() []statusTest {
	const (
		ok, badRequest, fault, away = http.StatusNoContent, http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable
		full, conflict              = http.StatusTooManyRequests, http.StatusConflict
	)
	policy := func(o ...ratelimit.Option) []ratelimit.Option { return o }
	open, dry := policy(ratelimit.WithFailOpen()), policy(ratelimit.WithDryRun())
	unknown := ratelimit.WithClasses(func(context.Context) string { return "ada" }, ratelimit.Class{Name: "interactive"})
	held := sqllock.ErrHeld
	return []statusTest{
		{name: "free", want: ok},
		{name: "full", locks: held, want: full},
		{name: "full, conflict", locks: held, opts: []httpmw.Option{httpmw.WithConflict()}, want: conflict},
		{name: "full, in a dry run", locks: held, policy: dry, want: ok},

		{name: "away", locks: sqllock.ErrUnavailable, want: away},
		{name: "away, conflict", locks: sqllock.ErrUnavailable, opts: []httpmw.Option{httpmw.WithConflict()}, want: away},
		{name: "away, fails open", locks: sqllock.ErrUnavailable, policy: open, want: ok},
		{name: "away while it waits", locks: sqllock.ErrUnavailable, policy: policy(ratelimit.WithWait(time.Millisecond, 1)), want: away},
		{name: "no room", locks: sqllock.ErrCapacity, policy: open, want: away},
		{name: "not exclusive", locks: sqllock.ErrNotExclusive, want: away},
		{name: "bad setup", locks: sqllock.ErrConfig, want: away},
		{name: "closed", locks: sqllock.ErrClosed, want: away},
		{name: "unknown", locks: io.ErrUnexpectedEOF, want: away},
		{name: "the client has left", locks: context.Canceled, want: away},
		{name: "too late", locks: context.DeadlineExceeded, want: away},

		{name: "no key", key: httpmw.ErrNoKey, want: badRequest, log: noKeyLog},
		{name: "no key, conflict", key: httpmw.ErrNoKey, opts: []httpmw.Option{httpmw.WithConflict()}, want: badRequest, log: noKeyLog},
		{name: "no key, fails open", key: httpmw.ErrNoKey, policy: open, want: badRequest, log: noKeyLog},
		{name: "no key, in a dry run", key: httpmw.ErrNoKey, policy: dry, want: ok, log: noKeyLog},
		{name: "bad key", key: fmt.Errorf("looking up: %w", ratelimit.ErrBadID), want: badRequest},
		{name: "long key", id: strings.Repeat("ada", 1000), want: badRequest},
		{name: "key with NUL", id: "ada\x00", want: badRequest},
		{name: "key not UTF-8", id: "ada\xff", want: badRequest},

		{name: "bypass", key: httpmw.ErrBypass, want: ok},
		{name: "bypass, wrapped", key: fmt.Errorf("an admin: %w", httpmw.ErrBypass), want: ok},
		{name: "full, bypassed", locks: held, key: httpmw.ErrBypass, want: ok},

		{name: "directory away", key: fmt.Errorf("looking up: %w", sqllock.ErrUnavailable), want: away},
		{name: "its own error", key: errors.New("dial tcp: refused"), want: fault, log: faultLog},
		{name: "its own error, with a response", key: fmt.Errorf("looking up: %w", teapotError()), want: fault, log: faultLog},
		{name: "its own deadline", key: context.DeadlineExceeded, want: fault, log: faultLog},
		{name: "a limit of its own is full", key: &ratelimit.BusyError{Namespace: "directory"}, want: fault, log: faultLog},

		{name: "policy without a limit", policy: policy(limitOf(0)), want: fault, log: policyLog},
		{name: "policy of an unknown class", policy: policy(unknown), want: fault, log: policyLog},
	}
}()

// limitOf returns a policy in which each id has n places.
func limitOf(n int) ratelimit.Option {
	return ratelimit.WithLimit(func(context.Context, string) int { return n })
}

// Each level decides on a request with the status that it has alone. The
// response names that level, and the log too. No place is left on another one.
func TestStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range statusTests {
		for _, size := range []int{1, len(three)} {
			for at := range size {
				t.Run(fmt.Sprintf("%s/%d of %d", tt.name, at, size), func(t *testing.T) {
					t.Parallel()
					tt.test(t, at, size)
				})
			}
		}
	}
}

func (tt statusTest) test(t *testing.T, at, size int) {
	var (
		log    httptesting.Logbook
		levels []httpmw.Level
		told   []error // the errors of the level's events
	)
	for i, ns := range three[:size] {
		var locks sqllock.Locker = sqllock.NewMemory()
		key := constant("ada-"+strconv.Itoa(i), nil)
		policy := []ratelimit.Option{ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return time.Duration(i+2) * time.Second })}
		if i == at {
			policy = append(policy, ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) { told = append(told, e.Err) }))
			if policy = append(policy, tt.policy...); tt.locks != nil {
				locks = httptesting.Failing{Err: tt.locks}
			}
			if tt.id != "" || tt.key != nil {
				key = constant(tt.id, tt.key)
			}
		}
		levels = append(levels, httpmw.Level{Limiter: ratelimit.AtMost(i+1, locks, ns, policy...), Key: key})
	}
	opts := append(slices.Clone(tt.opts), httpmw.WithLogger(log.Logger()), httpmw.WithRateLimitHeaders(), httpmw.WithProblemType(problem))
	ran := false
	r := request("/export/7", user+": ada")
	r.Pattern = "GET /export/{id}"
	w := serve(httpmw.NewStack(levels, opts...).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ran = true
		for i, ns := range three[:size] {
			var keys []sqllock.Key
			for slot := range i + 1 {
				keys = append(keys, ns.SlotKey("ada-"+strconv.Itoa(i), slot))
			}
			_, carried := sqllock.FromContext(r.Context(), keys...)
			if want := i != at || tt.locks == nil && tt.key == nil; carried != want {
				t.Errorf("the context carries a lock of %s: %v, want %v", ns, carried, want)
			}
		}
		w.WriteHeader(http.StatusNoContent)
	})), r)

	if w.Code != tt.want || ran != (tt.want == http.StatusNoContent) {
		t.Errorf("status %d, the handler ran: %v; want status %d", w.Code, ran, tt.want)
	}
	wantFree(t, levels)
	for i, level := range levels {
		if n := level.Limiter.Stats().Requests[ratelimit.Admitted]; i != at && ran != (n == 1) {
			t.Errorf("the handler ran: %v, and %s has admitted %d", ran, level.Limiter.Namespace(), n)
		}
	}
	switch {
	case errors.Is(tt.key, httpmw.ErrBypass):
		if len(told) > 0 {
			t.Errorf("the Observer was told of a request that is not limited: %v", told)
		}
	case tt.key != nil && (len(told) == 0 || !errors.Is(told[0], tt.key)):
		t.Errorf("the Observer was told of %v, want the KeyFunc's error", told)
	}
	if tt.log == "" {
		log.Want(t, "a request", 0)
	} else {
		log.Want(t, "a request", 1, tt.log, string(three[at]), `route="GET /export/{id}"`)
	}
	if !ran {
		tt.checkRejection(t, w, levels[at].Limiter)
	}
}

// checkRejection checks the response of a level that has not admitted a request.
func (tt statusTest) checkRejection(t *testing.T, w *httptest.ResponseRecorder, l *ratelimit.Limiter) {
	t.Helper()
	p := httptesting.WantProblem(t, w.Header(), w.Body.String(), tt.want)
	if tt.want == http.StatusInternalServerError && tt.key != nil && strings.Contains(w.Body.String(), tt.key.Error()) {
		t.Errorf("the client reads the error: %s", w.Body)
	}
	busy := tt.want == http.StatusTooManyRequests || tt.want == http.StatusConflict
	after := w.Header().Get("Retry-After")
	if want := busy || tt.want == http.StatusServiceUnavailable; (after != "") != want {
		t.Errorf("Retry-After %q, want one: %v", after, want)
	}
	if !busy {
		if got := w.Header().Get("RateLimit"); got != "" {
			t.Errorf("RateLimit %q", got)
		}
		if p.Type != "about:blank" || p.Title != http.StatusText(tt.want) { // as RFC 9457 wants it
			t.Errorf("type %q, title %q", p.Type, p.Title)
		}
		return
	}
	ns, n, wait := string(l.Namespace()), strconv.Itoa(l.Limit()), strconv.Itoa(l.Limit()+1)
	for got, want := range map[string]string{
		after:                              wait,
		w.Header().Get("RateLimit-Policy"): `"` + ns + `";q=` + n + `;qu="concurrent-requests"`,
		w.Header().Get("RateLimit"):        `"` + ns + `";r=0;t=` + wait,
		p.Type:                             problem,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if !strings.Contains(p.Detail, `The limit "`+ns+`" admits `) || !strings.Contains(p.Detail, "Try again in "+wait+" seconds.") {
		t.Errorf("detail %s, want it to name %s", p.Detail, ns)
	}
}
