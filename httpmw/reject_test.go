package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Requests that are rejected at one moment get different times for Retry-After.
func TestRetryAfterOutageIsSpread(t *testing.T) {
	t.Parallel()
	told := map[string]int{}
	for range 300 {
		w := httptest.NewRecorder()
		limited(sqllock.NewMemory()).Reject(w, request("/"), sqllock.ErrUnavailable)
		told[w.Header().Get("Retry-After")]++
	}
	if len(told) != 3 || told["1"] == 0 || told["2"] == 0 || told["3"] == 0 {
		t.Errorf("Retry-After %v, want 1, 2 and 3 at random", told)
	}
}

// Reject accepts any error, and headers that were set for another response. A
// BusyError may name no level of the stack. WithBusyText stands for each.
func TestReject(t *testing.T) {
	t.Parallel()
	levels, _ := levelsWith(-1)
	const busy, away, none = http.StatusTooManyRequests, http.StatusServiceUnavailable, "As many requests as the limits admit are in progress."
	own := []httpmw.Option{httpmw.WithBusyText("Wait for your export.")}
	for _, tt := range []struct {
		err    error
		opts   []httpmw.Option
		status int
		detail string // how it begins
	}{
		{&ratelimit.BusyError{Namespace: "tenant"}, nil, busy, `The limit "tenant" admits one request`},
		{&ratelimit.BusyError{Namespace: "tenant"}, own, busy, "Wait for your export."},
		{&ratelimit.BusyError{Namespace: "other"}, nil, busy, none},
		{ratelimit.ErrBusy, nil, busy, none},
		{ratelimit.ErrBusy, own, busy, "Wait for your export."},
		{httpmw.ErrNoKey, nil, http.StatusBadRequest, ""},
		{ratelimit.ErrPolicy, nil, http.StatusInternalServerError, ""},
		{nil, nil, away, ""},
		{errors.New("mine"), nil, away, ""},
		{errors.Join(io.EOF, io.EOF), nil, away, ""},
		{sqllock.ErrLost, nil, away, ""},
		{ratelimit.ErrMaxHold, nil, away, ""},
		{teapotError(), nil, http.StatusTeapot, "Use a cup."},
		{fmt.Errorf("db: %w", teapotError()), nil, away, ""}, // an error inside chooses nothing
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Length", "3")
		httpmw.NewStack(levels, append(tt.opts, httpmw.WithRateLimitHeaders())...).Reject(w, request("/"), tt.err)
		p := httptesting.WantProblem(t, w.Header(), w.Body.String(), tt.status)
		if w.Code != tt.status || w.Header().Get("Content-Length") != "" || !strings.HasPrefix(p.Detail, tt.detail) {
			t.Errorf("%v: status %d, Content-Length %q, detail %s; want %d, none, %s",
				tt.err, w.Code, w.Header().Get("Content-Length"), p.Detail, tt.status, tt.detail)
		}
	}
}

// teapotError returns an error that chooses its response, as package
// idempotency makes them.
func teapotError() error {
	return &admission.Response{Err: io.EOF, Status: http.StatusTeapot, Detail: "Use a cup."}
}

// What a reject handler writes is the response. If it has not begun one, the
// response is the Middleware's own.
func TestWithRejectHandler(t *testing.T) {
	t.Parallel()
	const teapot = http.StatusTeapot
	own := http.StatusTooManyRequests
	tests := []struct {
		name   string
		reject func(w http.ResponseWriter)
		want   int // 0 for no response
		text   string
	}{
		{"answers", func(w http.ResponseWriter) { w.WriteHeader(teapot); _, _ = io.WriteString(w, "mine") }, teapot, "mine"},
		{"status alone", func(w http.ResponseWriter) { w.WriteHeader(teapot) }, teapot, ""},
		{"body alone", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "mine") }, http.StatusOK, "mine"},
		{"flush alone", func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, http.StatusOK, ""},
		{"http.Error", func(w http.ResponseWriter) { http.Error(w, "mine", teapot) }, teapot, "mine\n"},
		{"nothing", func(http.ResponseWriter) {}, own, ""},
		{"headers alone", func(w http.ResponseWriter) { w.Header().Set("X-Mine", "1") }, own, ""},
		{"early hints alone", func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, own, ""},
		{"ends the connection", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, 0, ""},
		{"hijacks", func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmine")
			_ = conn.Close()
		}, teapot, "mine"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			given := make(chan error, 10) // a client may send an aborted request again
			m := limited(httptesting.Failing{Err: sqllock.ErrHeld}, httpmw.WithRejectHandler(func(w http.ResponseWriter, r *http.Request, err error) {
				given <- err
				if w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store" {
					t.Errorf("headers %v, want Retry-After and Cache-Control", w.Header())
				}
				tt.reject(w)
			}))
			s := httptesting.Serve(t, m.Handler(http.NotFoundHandler()))
			r, err := fetch(t.Context(), s, http.MethodGet, s.URL, nil)
			if given := httptesting.Receive(t, given, "error"); !errors.Is(given, ratelimit.ErrBusy) {
				t.Errorf("given %v, want ErrBusy", given)
			}
			switch {
			case (err == nil) != (tt.want != 0):
				t.Errorf("the client has %v, want a response: %v", err, tt.want != 0)
			case tt.want == 0:
			case r.StatusCode != tt.want:
				t.Errorf("status %d, want %d", r.StatusCode, tt.want)
			case tt.want == own:
				httptesting.WantProblem(t, r.Header, r.Text, own)
			case r.Text != tt.text:
				t.Errorf("body %q, want %q", r.Text, tt.text)
			}
		})
	}
}

// The response says which limit is full, what to do, and when, in whole seconds.
// It holds nothing of the request. The fields of the rate limit are structured
// fields, whatever the namespace.
func TestDetail(t *testing.T) {
	t.Parallel()
	one := func(err error, opts ...ratelimit.Option) *ratelimit.Limiter {
		return ratelimit.OneAtATime(httptesting.Failing{Err: err}, `ex"po\rt`, opts...)
	}
	names := map[string]string{`ex"po\rt`: `"ex\"po\\rt"`, "导出": `"default"`, " ~": `" ~"`, "a\x7f": `"default"`}
	const busy = `The limit "ex\"po\\rt" admits one request at a time, and another request is in progress. Try again in `
	after := func(d time.Duration) *ratelimit.Limiter {
		return one(sqllock.ErrHeld, ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return d }))
	}
	busyText := httpmw.WithBusyText("You can run one export at a time.")
	tests := []struct {
		name string
		l    *ratelimit.Limiter
		key  httpmw.KeyFunc
		opts []httpmw.Option
		want string
	}{
		{"busy", one(sqllock.ErrHeld), nil, nil, busy + "N."},
		{"busy for a second", after(time.Second), nil, nil, busy + "1 second."},
		{"busy for a little longer", after(time.Second + 1), nil, nil, busy + "2 seconds."},
		{"busy for ever", after(math.MaxInt64), nil, nil, busy + "9223372037 seconds."},
		{"busy no longer", after(-time.Hour), nil, nil, busy + "1 second."},
		{"several at a time", ratelimit.AtMost(3, httptesting.Failing{Err: sqllock.ErrHeld}, "导出"), nil, nil,
			`The limit "导出" admits 3 requests at a time, and 3 are in progress. Try again in N.`},
		{"the last printable characters", ratelimit.AtMost(3, httptesting.Failing{Err: sqllock.ErrHeld}, " ~"), nil, nil,
			`The limit " ~" admits 3 requests at a time, and 3 are in progress. Try again in N.`},
		{"a character behind them", ratelimit.AtMost(3, httptesting.Failing{Err: sqllock.ErrHeld}, "a\x7f"), nil, nil,
			`The limit "a\x7f" admits 3 requests at a time, and 3 are in progress. Try again in N.`},
		{"interrupted", one(fmt.Errorf("%w: %w", httpmw.ErrInterrupted, context.Canceled)), nil, nil,
			"The request was interrupted, and may have had effects. Try again in N."},
		{"busy, conflict", one(sqllock.ErrHeld), nil, []httpmw.Option{httpmw.WithConflict(), busyText},
			"You can run one export at a time. Try again in N."},
		{"away", one(sqllock.ErrUnavailable), nil, []httpmw.Option{busyText}, "The lock service is unavailable. Try again in N."},
		{"gone", one(context.Canceled), nil, nil, "The request ended while it waited for its turn. Try again in N."},
		{"no header", one(nil), httpmw.Header("X-Tenant"), nil,
			"The request has no header X-Tenant. Correct the request and send it again."},
		{"header twice", one(nil), httpmw.Join(httpmw.Header("X-Twice")), nil,
			"The request has more than one header X-Twice. Correct the request and send it again."},
		{"no cookie", one(nil), httpmw.Cookie("sid"), nil,
			"The request has no cookie sid. Correct the request and send it again."},
		{"query malformed", one(nil), httpmw.Query("q"), nil,
			"The query of the request is malformed. Correct the request and send it again."},
		{"no user", one(nil), httpmw.FromContext(identity), nil,
			"The request does not identify its user or resource. Correct the request and send it again."},
		{"a KeyFunc failed", one(nil), constant("", errors.New("ada")), nil,
			"The server failed to process the request. Its log says why. If this happens again, contact the people who run it."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.key == nil {
				tt.key = httpmw.Header(user)
			}
			r := request("/?q=%zz", user+": ada", "X-Twice: ada", "X-Twice: eve")
			w := serve(httpmw.New(tt.l, tt.key, append(tt.opts, httpmw.WithRateLimitHeaders())...).Handler(http.NotFoundHandler()), r)
			p := httptesting.WantProblem(t, w.Header(), w.Body.String(), w.Code)
			seconds := w.Header().Get("Retry-After")
			after := seconds + " seconds."
			if seconds == "1" {
				after = "1 second."
			}
			if want := strings.Replace(tt.want, "N.", after, 1); p.Detail != want || seconds != "" && !strings.HasSuffix(want, " in "+after) {
				t.Errorf("detail %q, Retry-After %q; want %q", p.Detail, seconds, want)
			}
			want, name := "", names[string(tt.l.Namespace())]
			if w.Code == http.StatusTooManyRequests || w.Code == http.StatusConflict {
				want = name + `;r=0;t=` + seconds
			}
			if got := w.Header().Get("RateLimit"); got != want || want != "" && !strings.HasPrefix(w.Header().Get("RateLimit-Policy"), name+";q=") {
				t.Errorf("RateLimit %s, policy %s; want %s", got, w.Header().Get("RateLimit-Policy"), want)
			}
		})
	}
}
