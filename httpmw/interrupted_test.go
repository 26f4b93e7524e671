package httpmw_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// wantInterrupted fails the test unless r says that its request was
// interrupted.
func wantInterrupted(t *testing.T, r httptesting.Reply) {
	t.Helper()
	r.Want(t, http.StatusServiceUnavailable)
	httptesting.WantProblem(t, r.Header, r.Text, http.StatusServiceUnavailable)
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	for _, name := range []string{"Content-Encoding", "Etag"} {
		if got := r.Header.Get(name); got != "" {
			t.Errorf("%s %q is left of the handler's response", name, got)
		}
	}
}

// held returns a Middleware whose locks may be held only for a moment.
func held(opts ...httpmw.Option) *httpmw.Middleware {
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(10*time.Millisecond))
	return httpmw.New(l, httpmw.Header(user), opts...)
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
		{"status of success before", held(), func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK); ended(r) }, http.StatusOK},
		{"status after", held(), func(w http.ResponseWriter, r *http.Request) { ended(r); w.WriteHeader(http.StatusAccepted) }, http.StatusAccepted},
		{"body", held(), func(w http.ResponseWriter, r *http.Request) { ended(r); _, _ = io.WriteString(w, "") }, http.StatusOK},
		{"flush", held(), func(w http.ResponseWriter, r *http.Request) { flush(w); ended(r) }, http.StatusOK},
		{"alive", limited(sqllock.NewMemory()), func(http.ResponseWriter, *http.Request) {}, http.StatusOK},
		{"hints alone", held(), func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusEarlyHints); ended(r) }, http.StatusServiceUnavailable},
		{"empty copy", held(), func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, struct{ io.Reader }{http.NoBody}) // without WriteTo, so ReadFrom is called
			ended(r)
		}, http.StatusServiceUnavailable},
		{"flush that is not supported", held(), func(w http.ResponseWriter, r *http.Request) {
			held().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				flush(w)
				ended(r)
			})).ServeHTTP(struct{ http.ResponseWriter }{w}, r)
		}, http.StatusServiceUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := get(t, httptesting.Serve(t, tt.m.Handler(tt.h)))
			if r.Want(t, tt.want); tt.want < 300 && r.Text != "" {
				t.Errorf("the body is %q", r.Text)
			}
		})
	}
}

// WithRejectHandler can distinguish an interruption, and its cause, from a
// request that was not admitted. Its response has none of the handler's header
// fields.
func TestRejectHandlerIsToldOfInterruption(t *testing.T) {
	t.Parallel()
	told := make(chan error, 1)
	m := held(httpmw.WithRejectHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
		told <- err
		w.WriteHeader(http.StatusGatewayTimeout)
		_, _ = io.WriteString(w, "try again")
	}))
	r := get(t, httptesting.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		w.Header().Set("Content-Type", "image/png")
		<-r.Context().Done()
	}))))
	if r.Want(t, http.StatusGatewayTimeout); r.Text != "try again" || r.Header.Get("Content-Type") == "image/png" {
		t.Errorf("%v %q", r.Header, r.Text)
	}
	if err := httptesting.Receive(t, told, "error"); !errors.Is(err, httpmw.ErrInterrupted) || !errors.Is(err, ratelimit.ErrMaxHold) {
		t.Errorf("error %v, want ErrInterrupted and ErrMaxHold", err)
	}
}

// An unwrapper has only Unwrap, like the ResponseWriters of many loggers.
type unwrapper struct{ http.ResponseWriter }

func (w unwrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A hijacked connection gets no other response, also behind a ResponseWriter
// that can only be unwrapped.
func TestInterruptedAfterHijackBehindUnwrap(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	reject := httpmw.WithRejectHandler(func(_ http.ResponseWriter, _ *http.Request, err error) {
		t.Errorf("a hijacked connection was rejected: %v", err)
	})
	h := held(reject).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
}

// Middleware that compresses may have set its Content-Encoding before.
func TestInterruptedInsideOfCompression(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	w.Header().Set("Content-Encoding", "gzip")
	held().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", "1")
		<-r.Context().Done()
	})).ServeHTTP(w, request("/", user+": ada"))
	if h := w.Header(); w.Code != http.StatusServiceUnavailable || h.Get("Content-Encoding") != "gzip" || h.Get("ETag") != "" {
		t.Errorf("status %d, header %v", w.Code, h)
	}
}
