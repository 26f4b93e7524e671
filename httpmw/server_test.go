package httpmw_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// user is the header with the user of a request. It stands for authentication.
const user = httptesting.User

// limited returns a Middleware of one at a time over locks, by user.
func limited(locks sqllock.Locker, opts ...httpmw.Option) *httpmw.Middleware {
	return httpmw.New(ratelimit.OneAtATime(locks, "export"), httpmw.Header(user), opts...)
}

// ended returns a Middleware like limited, and a channel that gets a token when
// one of its locks was released.
func ended() (*httpmw.Middleware, <-chan struct{}) {
	c := make(chan struct{}, 1000)
	return releasing(func() { c <- struct{}{} }), c
}

// releasing returns a Middleware like limited that calls f when a lock was
// released, before its key is free.
func releasing(f func()) *httpmw.Middleware {
	return httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
		if e.Result == ratelimit.Released {
			f()
		}
	})), httpmw.Header(user))
}

// serve has h respond to r, without a server.
func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// status returns a handler that responds with code.
func status(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

// get sends a GET of ada and reads the whole response.
func get(t *testing.T, s *httptest.Server) httptesting.Reply {
	t.Helper()
	r, err := fetch(t.Context(), s, http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eventually sends requests until one gets status.
func eventually(t *testing.T, s *httptest.Server, status int) {
	t.Helper()
	lockertest.Eventually(t, http.StatusText(status), func() bool { return get(t, s).StatusCode == status })
}

// fetch sends a request of ada and reads the whole response.
func fetch(ctx context.Context, s *httptest.Server, method, url string, body io.Reader) (httptesting.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, httptesting.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return httptesting.Reply{}, err
	}
	req.Header.Set(user, "ada")
	return httptesting.Do(s, req)
}

// open sends a request of ada, whose response the test reads by itself.
func open(t *testing.T, s *httptest.Server, method string, body io.Reader) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(user, "ada")
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// start sends a GET of ada from another goroutine.
func start(t *testing.T, s *httptest.Server, url string) <-chan httptesting.Reply {
	t.Helper()
	c := make(chan httptesting.Reply, 1)
	go func() {
		r, err := fetch(t.Context(), s, http.MethodGet, url, nil)
		if err != nil {
			t.Error(err)
		}
		c <- r
	}()
	return c
}
