package httpmw_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// wantInterrupted fails the test unless r says that its request was
// interrupted.
func wantInterrupted(t *testing.T, r httptesting.Reply) {
	t.Helper()
	r.Want(t, http.StatusServiceUnavailable)
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	var problem struct {
		Status int
		Detail string
	}
	if err := json.Unmarshal([]byte(r.Text), &problem); err != nil || problem.Status != http.StatusServiceUnavailable || problem.Detail == "" {
		t.Errorf("body %q, %v; want a problem", r.Text, err)
	}
	for _, name := range []string{"Content-Encoding", "Etag"} {
		if got := r.Header.Get(name); got != "" {
			t.Errorf("%s %q is left of the handler's response", name, got)
		}
	}
}

// ignoring returns a handler that waits for the end of its context and returns,
// like one whose database call has failed.
func ignoring(inside chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("ETag", `"1"`)
		inside <- struct{}{}
		<-r.Context().Done()
	}
}

// If a handler returns without a response after the loss of its lock, the
// response is 503.
func TestLossWithoutResponseIs503(t *testing.T) {
	t.Parallel()
	eachStack(t, func(t *testing.T, levels stack) {
		for _, driver := range pgtest.Drivers() {
			t.Run(driver, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Database(t)
				inside := make(chan struct{}, 1)
				s := httptesting.Serve(t, levels.over(httptesting.Session(t, dbtest.Open(t, driver, dsn))).Handler(ignoring(inside)))
				response := start(t, s)
				httptesting.Receive(t, inside, "request")
				httptesting.Terminate(t, dbtest.Open(t, driver, dsn))
				wantInterrupted(t, httptesting.Receive(t, response, "response"))
			})
		}
	})
}

// held returns a Middleware whose locks may be held only for a moment.
func held(opts ...httpmw.Option) *httpmw.Middleware {
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(10*time.Millisecond))
	return httpmw.New(l, httpmw.Header(user), opts...)
}

// The response is 503 also after WithMaxHold.
func TestMaxHoldWithoutResponseIs503(t *testing.T) {
	t.Parallel()
	eachStack(t, func(t *testing.T, levels stack) {
		for _, p := range httptesting.Protocols {
			t.Run(p.Name, func(t *testing.T) {
				t.Parallel()
				m := levels.over(sqllock.NewMemory(), ratelimit.WithMaxHold(10*time.Millisecond))
				s := p.Serve(t, m.Handler(ignoring(make(chan struct{}, 2))))
				wantInterrupted(t, get(t, s))
				wantInterrupted(t, get(t, s)) // the lock is back
			})
		}
	})
}

// The response is 503 also when the server shuts down.
func TestShutdownWithoutResponseIs503(t *testing.T) {
	t.Parallel()
	eachStack(t, func(t *testing.T, levels stack) {
		base, stop := context.WithCancel(t.Context())
		defer stop()
		inside := make(chan struct{}, 1)
		s := httptest.NewUnstartedServer(levels.over(sqllock.NewMemory()).Handler(ignoring(inside)))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.Config.BaseContext = func(net.Listener) context.Context { return base }
		s.Start()
		defer s.Close()
		response := start(t, s)
		httptesting.Receive(t, inside, "request")
		stop()
		wantInterrupted(t, httptesting.Receive(t, response, "response"))
	})
}

// A handler that has begun a response keeps it. A handler whose context has not
// ended sends 200 by returning.
func TestResponseBegunIsLeftAlone(t *testing.T) {
	t.Parallel()
	ended := func(r *http.Request) { <-r.Context().Done() }
	tests := []struct {
		name string
		m    *httpmw.Middleware
		h    http.HandlerFunc
		want int
	}{
		{"status before", held(), func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusAccepted); ended(r) }, http.StatusAccepted},
		{"status after", held(), func(w http.ResponseWriter, r *http.Request) { ended(r); w.WriteHeader(http.StatusAccepted) }, http.StatusAccepted},
		{"body", held(), func(w http.ResponseWriter, r *http.Request) { ended(r); _, _ = io.WriteString(w, "") }, http.StatusOK},
		{"flush", held(), func(w http.ResponseWriter, r *http.Request) { flush(w); ended(r) }, http.StatusOK},
		{"alive", limited(sqllock.NewMemory()), func(http.ResponseWriter, *http.Request) {}, http.StatusOK},
		{"hints alone", held(), func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusEarlyHints); ended(r) }, http.StatusServiceUnavailable},
		{"empty copy", held(), func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, http.NoBody)
			ended(r)
		}, http.StatusServiceUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			get(t, httptesting.Serve(t, tt.m.Handler(tt.h))).Want(t, tt.want)
		})
	}
}

// WithRejectHandler can distinguish an interruption, and its cause, from a
// request that was not admitted.
func TestRejectHandlerIsToldOfInterruption(t *testing.T) {
	t.Parallel()
	told := make(chan error, 1)
	m := held(httpmw.WithRejectHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
		told <- err
		w.WriteHeader(http.StatusGatewayTimeout)
	}))
	get(t, httptesting.Serve(t, m.Handler(ignoring(make(chan struct{}, 1))))).Want(t, http.StatusGatewayTimeout)
	if err := httptesting.Receive(t, told, "error"); !errors.Is(err, httpmw.ErrInterrupted) || !errors.Is(err, ratelimit.ErrMaxHold) {
		t.Errorf("error %v, want ErrInterrupted and ErrMaxHold", err)
	}
}

// A request waits in an inner Middleware, and its handler returns without a
// response and without reading the body. That is no interruption for the outer
// Middleware.
func TestWaitInsideOfAnotherMiddleware(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{"Content-Length: 1000000", "Transfer-Encoding: chunked"} {
		t.Run(fields, func(t *testing.T) {
			t.Parallel()
			tenant := ratelimit.AtMost(2, sqllock.NewMemory(), "tenant")
			around := httpmw.New(tenant, httpmw.Header(user)).Handler
			l := newLineInside(t, around, func(http.ResponseWriter, *http.Request) {})
			conn := l.wait(t, post(fields))
			close(l.leave)
			response(t, conn).Want(t, http.StatusOK)
		})
	}
}

// An unwrapper has only Unwrap, like the ResponseWriters of many loggers.
type unwrapper struct{ http.ResponseWriter }

func (w unwrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A hijacked connection gets no other response, also behind a ResponseWriter
// that can only be unwrapped.
func TestInterruptedAfterHijackBehindUnwrap(t *testing.T) {
	t.Parallel()
	rejected := make(chan error, 1)
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(20*time.Millisecond)),
		httpmw.Header(user), httpmw.WithRejectHandler(func(_ http.ResponseWriter, _ *http.Request, err error) { rejected <- err }))
	ended := make(chan struct{})
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		<-r.Context().Done()
	}))
	s := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(unwrapper{w}, r)
	}))
	dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\n"+user+": ada\r\n\r\n")
	httptesting.Receive(t, ended, "end")
	select {
	case err := <-rejected:
		t.Errorf("a hijacked connection was rejected: %v", err)
	default:
	}
}

// Middleware that compresses may have set its Content-Encoding before.
func TestInterruptedInsideOfCompression(t *testing.T) {
	t.Parallel()
	h := held().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-A", "1")
		<-r.Context().Done()
	}))
	s := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		gz := gzip.NewWriter(w)
		defer gz.Close()
		h.ServeHTTP(compressed{w, gz}, r)
	}))
	r := get(t, s)
	r.Want(t, http.StatusServiceUnavailable)
	if !strings.Contains(r.Text, "interrupted") {
		t.Errorf("header %v, body %q", r.Header, r.Text)
	}
}

type compressed struct {
	http.ResponseWriter
	gz *gzip.Writer
}

func (w compressed) Write(p []byte) (int, error) { return w.gz.Write(p) }

// The response of WithRejectHandler has none of the handler's header fields.
func TestInterruptedWithRejectHandler(t *testing.T) {
	t.Parallel()
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(20*time.Millisecond)),
		httpmw.Header(user), httpmw.WithRejectHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "try again")
		}))
	s := httptesting.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		w.Header().Set("Content-Type", "image/png")
		<-r.Context().Done()
	})))
	r, err := fetch(t.Context(), s, "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Text != "try again" || r.Header.Get("Content-Type") == "image/png" {
		t.Errorf("%v %q", r.Header, r.Text)
	}
}
