package httpmw_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/rejection"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A locker fails every request with err.
type locker struct{ err error }

func (l locker) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, l.err }
func (l locker) Lock(context.Context, sqllock.Key) (*sqllock.Lock, error)    { return nil, l.err }

func TestStatus(t *testing.T) {
	t.Parallel()
	conflict := []httpmw.Option{httpmw.WithConflict()}
	tests := []struct {
		name  string
		err   error // of the locker; nil if the key is free
		user  string
		opts  []httpmw.Option
		want  int
		retry bool
	}{
		{"free", nil, "ada", nil, http.StatusNoContent, false},
		{"busy", sqllock.ErrHeld, "ada", nil, http.StatusTooManyRequests, true},
		{"busy, conflict", sqllock.ErrHeld, "ada", conflict, http.StatusConflict, true},
		{"away", sqllock.ErrUnavailable, "ada", nil, http.StatusServiceUnavailable, true},
		{"away, conflict", sqllock.ErrUnavailable, "ada", conflict, http.StatusServiceUnavailable, true},
		{"capacity", sqllock.ErrCapacity, "ada", nil, http.StatusServiceUnavailable, true},
		{"not exclusive", sqllock.ErrNotExclusive, "ada", nil, http.StatusServiceUnavailable, true},
		{"config", sqllock.ErrConfig, "ada", nil, http.StatusServiceUnavailable, true},
		{"closed", sqllock.ErrClosed, "ada", nil, http.StatusServiceUnavailable, true},
		{"unknown", io.ErrUnexpectedEOF, "ada", nil, http.StatusServiceUnavailable, true},
		{"context ended", context.Canceled, "ada", nil, http.StatusServiceUnavailable, true},
		{"deadline passed", context.DeadlineExceeded, "ada", nil, http.StatusServiceUnavailable, true},
		{"no key", nil, "", nil, http.StatusBadRequest, false},
		{"no key, conflict", nil, "", conflict, http.StatusBadRequest, false},
		{"long key", nil, strings.Repeat("ada", 1000), nil, http.StatusBadRequest, false},
		{"key with NUL", nil, "ada\x00", nil, http.StatusBadRequest, false},
		{"key not UTF-8", nil, "ada\xff", nil, http.StatusBadRequest, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var locks sqllock.Locker = sqllock.NewMemory()
			if tt.err != nil {
				locks = locker{tt.err}
			}
			h := limited(locks, tt.opts...).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNoContent)
			}))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request("/", user+": "+tt.user))
			if w.Code != tt.want {
				t.Errorf("status %d, want %d", w.Code, tt.want)
			}
			seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if tt.retry != (err == nil && seconds >= 1) {
				t.Errorf("Retry-After %q, want one: %v", w.Header().Get("Retry-After"), tt.retry)
			}
			if w.Code != http.StatusNoContent {
				checkProblem(t, w.Result(), tt.want)
			}
		})
	}
}

// checkProblem checks that a response is a problem of RFC 9457, and that it
// holds nothing of the request.
func checkProblem(t *testing.T, resp *http.Response, status int) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Type":           "application/problem+json",
		"Cache-Control":          "no-store",
		"X-Content-Type-Options": "nosniff",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p map[string]any
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	if p["status"] != float64(status) || p["title"] == "" || p["type"] == "" || p["detail"] == "" || len(p) != 4 {
		t.Errorf("body %s, want type, title, status %d and detail", body, status)
	}
	if all := fmt.Sprint(resp.Header, string(body)); strings.Contains(all, "ada") {
		t.Errorf("the response holds the key: %s", all)
	}
}

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
		l := ratelimit.OneAtATime(locker{sqllock.ErrHeld}, "export",
			ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return d }))
		w := httptest.NewRecorder()
		httpmw.New(l, httpmw.Header(user)).Handler(http.NotFoundHandler()).ServeHTTP(w, request("/", user+": ada"))
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v: Retry-After %q, want %q", d, got, want)
		}
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
		fmt.Errorf("%w", io.EOF):    http.StatusServiceUnavailable,
		http.ErrBodyReadAfterClose:  http.StatusServiceUnavailable,
		ratelimit.ErrMaxHold:        http.StatusServiceUnavailable,
		sqllock.ErrReleased:         http.StatusServiceUnavailable,
		sqllock.ErrNotExclusive:     http.StatusServiceUnavailable,
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
		checkProblem(t, w.Result(), want)
	}
}

// teapotError returns an error that chooses its response, as package
// idempotency makes them.
func teapotError() error {
	return &rejection.Error{Err: io.EOF, Status: http.StatusTeapot, Detail: "Use a cup."}
}

func TestWithProblemType(t *testing.T) {
	t.Parallel()
	const uri = "https://api.example/problems/busy"
	tests := []struct {
		name string
		err  error
		user string
		want string // type
	}{
		{"busy", sqllock.ErrHeld, "ada", uri},
		{"away", sqllock.ErrUnavailable, "ada", "about:blank"},
		{"no key", nil, "", "about:blank"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			m := limited(locker{tt.err}, httpmw.WithProblemType(uri))
			m.Handler(http.NotFoundHandler()).ServeHTTP(w, request("/", user+": "+tt.user))
			var p struct{ Type, Title string }
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			blank := p.Title == http.StatusText(w.Code) // as RFC 9457 wants it for about:blank
			if p.Type != tt.want || blank != (tt.want == "about:blank") {
				t.Errorf("type %q, title %q; want type %q", p.Type, p.Title, tt.want)
			}
		})
	}
}

func TestWithRateLimitHeaders(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		ns     sqllock.Namespace
		err    error
		policy string
		limit  string
	}{
		{"busy", "export", sqllock.ErrHeld, `"export";q=3;qu="concurrent-requests"`, `"export";r=0;t=7`},
		{"quotes", `a"b\c`, sqllock.ErrHeld, `"a\"b\\c";q=3;qu="concurrent-requests"`, `"a\"b\\c";r=0;t=7`},
		{"other scripts", "导出", sqllock.ErrHeld, `"default";q=3;qu="concurrent-requests"`, `"default";r=0;t=7`},
		{"away", "export", sqllock.ErrUnavailable, "", ""},
		{"bad key", "export", ratelimit.ErrBadID, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := ratelimit.AtMost(3, locker{tt.err}, tt.ns,
				ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return 7 * time.Second }))
			m := httpmw.New(l, httpmw.Header(user), httpmw.WithRateLimitHeaders())
			w := httptest.NewRecorder()
			m.Handler(http.NotFoundHandler()).ServeHTTP(w, request("/", user+": ada"))
			if got := w.Header().Get("RateLimit-Policy"); got != tt.policy {
				t.Errorf("RateLimit-Policy: %s, want %s", got, tt.policy)
			}
			if got := w.Header().Get("RateLimit"); got != tt.limit {
				t.Errorf("RateLimit: %s, want %s", got, tt.limit)
			}
		})
	}
}

func TestWithRejectHandler(t *testing.T) {
	t.Parallel()
	const teapot = http.StatusTeapot
	own := http.StatusTooManyRequests
	tests := []struct {
		name   string
		reject func(w http.ResponseWriter)
		want   int
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
			var given error
			m := limited(locker{sqllock.ErrHeld}, httpmw.WithRejectHandler(func(w http.ResponseWriter, r *http.Request, err error) {
				given = err
				if w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "no-store" {
					t.Errorf("headers %v, want Retry-After and Cache-Control", w.Header())
				}
				tt.reject(w)
			}))
			r := get(t, httptesting.Serve(t, m.Handler(http.NotFoundHandler())))
			r.Want(t, tt.want)
			if !errors.Is(given, ratelimit.ErrBusy) {
				t.Errorf("given %v, want ErrBusy", given)
			}
			if tt.want == own {
				r.Body = io.NopCloser(strings.NewReader(r.Text))
				checkProblem(t, r.Response, own)
			} else if r.Text != tt.text {
				t.Errorf("body %q, want %q", r.Text, tt.text)
			}
		})
	}
}

// A reject handler may panic to end the connection.
func TestRejectHandlerAborts(t *testing.T) {
	t.Parallel()
	m := limited(locker{sqllock.ErrHeld}, httpmw.WithRejectHandler(func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler)
	}))
	s := httptesting.Serve(t, m.Handler(http.NotFoundHandler()))
	if r, err := fetch(t.Context(), s, http.MethodGet, s.URL, nil); err == nil {
		t.Errorf("status %d, want no response", r.StatusCode)
	}
}

// bareWriter can neither flush nor hijack.
type bareWriter struct{ http.ResponseWriter }

// A reject handler whose Flush or Hijack fails has not responded.
func TestRejectHandlerFails(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*http.ResponseController) error{
		"flush":  (*http.ResponseController).Flush,
		"hijack": func(c *http.ResponseController) error { _, _, err := c.Hijack(); return err },
	}
	for name, try := range tests {
		m := limited(locker{sqllock.ErrHeld}, httpmw.WithRejectHandler(func(w http.ResponseWriter, _ *http.Request, _ error) {
			if err := try(http.NewResponseController(w)); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: %v, want ErrNotSupported", name, err)
			}
		}))
		w := httptest.NewRecorder()
		m.Handler(http.NotFoundHandler()).ServeHTTP(bareWriter{w}, request("/", user+": ada"))
		if w.Code != http.StatusTooManyRequests {
			t.Errorf("%s: status %d, want 429", name, w.Code)
		}
		checkProblem(t, w.Result(), http.StatusTooManyRequests)
	}
}

// Requests that are rejected at one moment get different times for Retry-After.
func TestRetryAfterOutageIsSpread(t *testing.T) {
	t.Parallel()
	told := map[string]int{}
	for range 300 {
		w := httptest.NewRecorder()
		limited(locker{sqllock.ErrUnavailable}).Reject(w, request("/"), sqllock.ErrUnavailable)
		told[w.Header().Get("Retry-After")]++
	}
	if len(told) != 3 || told["1"] == 0 || told["2"] == 0 || told["3"] == 0 {
		t.Errorf("Retry-After %v, want 1, 2 and 3 at random", told)
	}
}

// The response says which limit is full, what to do, and when. It holds nothing
// of the request.
func TestDetail(t *testing.T) {
	t.Parallel()
	wait := func(d time.Duration) ratelimit.Option {
		return ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return d })
	}
	one := func(err error, opts ...ratelimit.Option) *ratelimit.Limiter {
		return ratelimit.OneAtATime(locker{err}, `ex"port`, opts...)
	}
	busyText := httpmw.WithBusyText("You can run one export at a time.")
	tests := []struct {
		name string
		l    *ratelimit.Limiter
		key  httpmw.KeyFunc
		opts []httpmw.Option
		want string
	}{
		{"busy", one(sqllock.ErrHeld), nil, nil,
			`The limit "ex\"port" admits one request at a time, and another request is in progress. Try again in 1 second.`},
		{"busy for longer", one(sqllock.ErrHeld, wait(1500*time.Millisecond)), nil, nil,
			`The limit "ex\"port" admits one request at a time, and another request is in progress. Try again in 2 seconds.`},
		{"busy for ever", one(sqllock.ErrHeld, wait(math.MaxInt64)), nil, []httpmw.Option{busyText},
			"You can run one export at a time. Try again in 9223372037 seconds."},
		{"several at a time", ratelimit.AtMost(3, locker{sqllock.ErrHeld}, "export"), nil, nil,
			`The limit "export" admits 3 requests at a time, and 3 are in progress. Try again in 1 second.`},
		{"busy, conflict", one(sqllock.ErrHeld), nil, []httpmw.Option{httpmw.WithConflict(), busyText},
			"You can run one export at a time. Try again in 1 second."},
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
		{"a KeyFunc failed", one(nil), func(*http.Request) (string, error) { return "", errors.New("ada") }, nil,
			"The server failed to process the request. Its log says why. If this happens again, contact the people who run it."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.key == nil {
				tt.key = httpmw.Header(user)
			}
			w := httptest.NewRecorder()
			r := request("/?q=%zz", user+": ada", "X-Twice: ada", "X-Twice: eve")
			httpmw.New(tt.l, tt.key, tt.opts...).Handler(http.NotFoundHandler()).ServeHTTP(w, r)
			var p struct{ Detail string }
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatalf("%v in %s", err, w.Body)
			}
			seconds := w.Header().Get("Retry-After")
			unit := " seconds."
			if seconds == "1" {
				unit = " second."
			}
			if want := strings.Replace(tt.want, "N.", seconds+unit, 1); p.Detail != want {
				t.Errorf("detail %q, want %q", p.Detail, want)
			}
			checkProblem(t, w.Result(), w.Code)
		})
	}
}
