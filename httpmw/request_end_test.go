package httpmw_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

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
					if r.URL.Path != "/stay" {
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
					if r, err := fetch(ctx, s, method, s.URL+"/stay", strings.NewReader("body")); err == nil {
						t.Errorf("status %d, want a canceled request", r.StatusCode)
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
	begun, down := make(chan struct{}), make(chan error, 1)
	old.Config.RegisterOnShutdown(func() { close(begun) })
	go func() { down <- old.Config.Shutdown(ctx) }()
	httptesting.Receive(t, begun, "begin of Shutdown")
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
