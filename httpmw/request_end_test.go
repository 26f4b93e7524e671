package httpmw_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The lock is released however a handler ends. A panic goes on to the server.
func TestPanics(t *testing.T) {
	t.Parallel()
	ends := map[string]func(){
		"panic":           func() { panic("broken") },
		"ErrAbortHandler": func() { panic(http.ErrAbortHandler) },
		"Goexit":          runtime.Goexit,
	}
	for name, end := range ends {
		for _, p := range httptesting.Protocols {
			if name == "Goexit" && p.Major == 2 {
				continue // net/http leaves such a stream open: its client would wait
			}
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				m, back := ended(sqllock.NewMemory())
				s := p.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodDelete {
						end()
					}
				})))
				if r, err := fetch(t.Context(), s, http.MethodDelete, s.URL, nil); err == nil {
					t.Errorf("status %d, want a broken connection", r.StatusCode)
				}
				httptesting.Receive(t, back, "lock")
				eventually(t, s, http.StatusOK)
			})
		}
	}
}

// The value of a panic reaches the middleware around unchanged.
func TestPanicGoesOn(t *testing.T) {
	t.Parallel()
	h := limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("recovered %v, want ErrAbortHandler", got)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), request("/", user+": ada"))
}

// When the client leaves, the handler's context ends. The lock is released when
// the handler returns, not before.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(p.Name+"/"+method, func(t *testing.T) {
				t.Parallel()
				m, back := ended(sqllock.NewMemory())
				inside, told, leave := make(chan struct{}), make(chan error, 1), make(chan struct{})
				s := p.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Stay") == "" {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body) // or the server does not look
					close(inside)
					<-r.Context().Done()
					told <- context.Cause(r.Context())
					httptesting.Stay(t.Context(), leave)
				})))
				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					req, _ := http.NewRequestWithContext(ctx, method, s.URL, strings.NewReader("body"))
					req.Header.Set(user, "ada")
					req.Header.Set("Stay", "1")
					if resp, err := s.Client().Do(req); err == nil {
						_ = resp.Body.Close()
						t.Errorf("status %d, want a canceled request", resp.StatusCode)
					}
				}()
				httptesting.Receive(t, inside, "request")
				cancel()
				httptesting.Receive(t, gone, "client")
				if cause := httptesting.Receive(t, told, "handler's context"); !errors.Is(cause, context.Canceled) {
					t.Errorf("cause %v, want Canceled", cause)
				}
				get(t, s).Want(t, http.StatusTooManyRequests)
				close(leave)
				httptesting.Receive(t, back, "lock")
				eventually(t, s, http.StatusOK)
			})
		}
	}
}

// An instance that shuts down serves its requests to the end, and holds their
// locks.
func TestShutdown(t *testing.T) {
	t.Parallel()
	locks, g := sqllock.NewMemory(), httptesting.NewGate(t)
	old, next := httptesting.Serve(t, limited(locks).Handler(g)), httptesting.Serve(t, limited(locks).Handler(g))
	first := start(t, old)
	r := httptesting.Receive(t, g.Inside, "first request")

	ctx, cancel := context.WithTimeout(t.Context(), httptesting.Patience)
	defer cancel()
	down := make(chan error, 1)
	go func() { down <- old.Config.Shutdown(ctx) }()
	for { // until the old instance does not listen any more
		if _, err := fetch(ctx, old, http.MethodGet, old.URL+"/?new", nil); err != nil {
			break
		}
	}
	if err := r.Context().Err(); err != nil {
		t.Errorf("the request's context ended: %v", err)
	}
	get(t, next).Want(t, http.StatusTooManyRequests)
	close(g.Leave)
	httptesting.Receive(t, first, "first response").Want(t, http.StatusOK)
	if err := httptesting.Receive(t, down, "Shutdown"); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	get(t, next).Want(t, http.StatusOK)
}

// TimeoutHandler responds while its handler still runs. With the lock inside of
// it, that handler keeps the next request out.
func TestInsideTimeoutHandler(t *testing.T) {
	t.Parallel()
	locks, g := sqllock.NewMemory(), httptesting.NewGate(t)
	m, back := ended(locks)
	timed := httptesting.Serve(t, http.TimeoutHandler(m.Handler(g), 20*time.Millisecond, "timed out"))
	other := httptesting.Serve(t, limited(locks).Handler(g)) // without a timeout, so that nothing depends on speed

	timeOut(t, timed, g, 1, http.StatusServiceUnavailable, http.StatusTooManyRequests)
	r := httptesting.Receive(t, g.Inside, "first request")
	if !errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		t.Errorf("the request's context: %v, want DeadlineExceeded", r.Context().Err())
	}
	get(t, other).Want(t, http.StatusTooManyRequests)
	close(g.Leave)
	for { // the last lock to go back is that of the request inside; others timed out before they came so far
		httptesting.Receive(t, back, "lock")
		if last := get(t, other); last.StatusCode != http.StatusTooManyRequests {
			last.Want(t, http.StatusOK)
			return
		}
	}
}

// With the lock outside, two requests run at a time.
func TestOutsideTimeoutHandlerOverlaps(t *testing.T) {
	t.Parallel()
	g := httptesting.NewGate(t)
	s := httptesting.Serve(t, limited(sqllock.NewMemory()).Handler(http.TimeoutHandler(g, 20*time.Millisecond, "timed out")))
	timeOut(t, s, g, 2, http.StatusServiceUnavailable) // both are inside: the first has not left
	close(g.Leave)
}

// timeOut sends requests until n are inside of g, each with one of statuses as
// its response. On a busy machine a request may be timed out before it gets
// there, and even hold its lock by then.
func timeOut(t *testing.T, s *httptest.Server, g *httptesting.Gate, n int, statuses ...int) {
	t.Helper()
	for range 1000 {
		if len(g.Inside) == n {
			return
		}
		if r := get(t, s); !slices.Contains(statuses, r.StatusCode) {
			t.Fatalf("status %d, want one of %v", r.StatusCode, statuses)
		}
	}
	t.Fatalf("%d requests came inside, want %d", len(g.Inside), n)
}
