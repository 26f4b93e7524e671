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

func TestRetryAfterIsRoundedUp(t *testing.T) {
	t.Parallel()
	tests := map[time.Duration]string{
		time.Nanosecond:               "1",
		time.Second:                   "1",
		time.Second + time.Nanosecond: "2",
		90 * time.Second:              "90",
		24 * time.Hour:                "86400",
		math.MaxInt64:                 "9223372037", // 9223372036.85 s: for ever
		-time.Hour:                    "1",
	}
	for d, want := range tests {
		l := ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, "export",
			ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return d }))
		w := serve(httpmw.New(l, httpmw.Header(user)).Handler(http.NotFoundHandler()), request("/", user+": ada"))
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v: Retry-After %q, want %q", d, got, want)
		}
	}
}

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

// Reject accepts any error, and headers that were set for another response.
func TestRejectAlwaysWrites(t *testing.T) {
	t.Parallel()
	tests := map[error]int{
		nil:                         http.StatusServiceUnavailable,
		errors.New("mine"):          http.StatusServiceUnavailable,
		ratelimit.ErrBusy:           http.StatusTooManyRequests,
		&ratelimit.BusyError{}:      http.StatusTooManyRequests,
		httpmw.ErrNoKey:             http.StatusBadRequest,
		ratelimit.ErrBadID:          http.StatusBadRequest,
		ratelimit.ErrPolicy:         http.StatusInternalServerError,
		sqllock.ErrLost:             http.StatusServiceUnavailable,
		ratelimit.ErrMaxHold:        http.StatusServiceUnavailable,
		sqllock.ErrReleased:         http.StatusServiceUnavailable,
		context.DeadlineExceeded:    http.StatusServiceUnavailable,
		errors.Join(io.EOF, io.EOF): http.StatusServiceUnavailable,

		teapotError():                       http.StatusTeapot,
		fmt.Errorf("db: %w", teapotError()): http.StatusServiceUnavailable, // an error inside chooses nothing
	}
	for err, want := range tests {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Length", "3")
		limited(sqllock.NewMemory()).Reject(w, request("/"), err)
		if w.Code != want || w.Header().Get("Content-Length") != "" {
			t.Errorf("%v: status %d, Content-Length %q; want %d, none", err, w.Code, w.Header().Get("Content-Length"), want)
		}
		httptesting.WantProblem(t, w.Header(), w.Body.String(), want)
	}
}

// teapotError returns an error that chooses its response, as package
// idempotency makes them.
func teapotError() error {
	return &admission.Response{Err: io.EOF, Status: http.StatusTeapot, Detail: "Use a cup."}
}

// The fields of the rate limit are structured fields, whatever the namespace.
func TestWithRateLimitHeaders(t *testing.T) {
	t.Parallel()
	for ns, want := range map[sqllock.Namespace]string{"export": `"export"`, `a"b\c`: `"a\"b\\c"`, "导出": `"default"`} {
		l := ratelimit.AtMost(3, httptesting.Failing{Err: sqllock.ErrHeld}, ns)
		m := httpmw.New(l, httpmw.Header(user), httpmw.WithRateLimitHeaders())
		h := serve(m.Handler(http.NotFoundHandler()), request("/", user+": ada")).Header()
		if got := h.Get("RateLimit-Policy"); got != want+`;q=3;qu="concurrent-requests"` {
			t.Errorf("%s: RateLimit-Policy: %s", ns, got)
		}
		if got := h.Get("RateLimit"); got != want+";r=0;t="+h.Get("Retry-After") {
			t.Errorf("%s: RateLimit: %s with Retry-After: %s", ns, got, h.Get("Retry-After"))
		}
	}
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

// The response says which limit is full, what to do, and when. It holds nothing
// of the request.
func TestDetail(t *testing.T) {
	t.Parallel()
	one := func(err error, opts ...ratelimit.Option) *ratelimit.Limiter {
		return ratelimit.OneAtATime(httptesting.Failing{Err: err}, `ex"port`, opts...)
	}
	longer := ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return 1500 * time.Millisecond })
	busyText := httpmw.WithBusyText("You can run one export at a time.")
	tests := []struct {
		name string
		l    *ratelimit.Limiter
		key  httpmw.KeyFunc
		opts []httpmw.Option
		want string
	}{
		{"busy", one(sqllock.ErrHeld), nil, nil,
			`The limit "ex\"port" admits one request at a time, and another request is in progress. Try again in N.`},
		{"busy for longer", one(sqllock.ErrHeld, longer), nil, nil,
			`The limit "ex\"port" admits one request at a time, and another request is in progress. Try again in 2 seconds.`},
		{"several at a time", ratelimit.AtMost(3, httptesting.Failing{Err: sqllock.ErrHeld}, "export"), nil, nil,
			`The limit "export" admits 3 requests at a time, and 3 are in progress. Try again in N.`},
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
			w := serve(httpmw.New(tt.l, tt.key, tt.opts...).Handler(http.NotFoundHandler()), r)
			p := httptesting.WantProblem(t, w.Header(), w.Body.String(), w.Code)
			after := w.Header().Get("Retry-After") + " seconds."
			if after == "1 seconds." {
				after = "1 second."
			}
			if want := strings.Replace(tt.want, "N.", after, 1); p.Detail != want {
				t.Errorf("detail %q, want %q", p.Detail, want)
			}
		})
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
