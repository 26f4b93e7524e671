package httpmw_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// patience bounds what a test waits for; it is never waited out if all is well.
const patience = 20 * time.Second

// user is the header with the user of a request. It stands for authentication.
const user = "X-Test-User"

// limited returns a Middleware of one at a time over locks, by user.
func limited(locks sqllock.Locker, opts ...httpmw.Option) *httpmw.Middleware {
	return httpmw.New(ratelimit.OneAtATime(locks, "export"), httpmw.Header(user), opts...)
}

// ended returns a Middleware like limited, and a channel that gets a token when
// one of its locks was released.
func ended(locks sqllock.Locker) (*httpmw.Middleware, <-chan struct{}) {
	c := make(chan struct{}, 1000)
	l := ratelimit.OneAtATime(locks, "export", onRelease(func() { c <- struct{}{} }))
	return httpmw.New(l, httpmw.Header(user)), c
}

// onRelease calls f when a lock was released.
func onRelease(f func()) ratelimit.Option {
	return ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
		if e.Result == ratelimit.Released {
			f()
		}
	})
}

// A protocol is a way to talk to a server.
type protocol struct {
	name  string
	major int
}

var protocols = []protocol{{"HTTP/1.1", 1}, {"HTTP/2", 2}}

// serve starts a server on a socket. Its log, mostly of panics, is discarded.
func (p protocol) serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if p.major == 2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	return protocols[0].serve(t, h)
}

// A reply is a response with its whole body.
type reply struct {
	*http.Response
	text string
}

// get sends a GET of ada and reads the whole response.
func get(t *testing.T, s *httptest.Server) reply {
	t.Helper()
	r, err := fetch(t.Context(), s, http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fetch sends a request of ada and reads the whole response.
func fetch(ctx context.Context, s *httptest.Server, method, url string, body io.Reader) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set(user, "ada")
	resp, err := s.Client().Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp, string(text)}, err
}

// want fails the test unless r has status.
func (r reply) want(t *testing.T, status int) {
	t.Helper()
	if r.StatusCode != status {
		t.Fatalf("status %d, want %d: %s", r.StatusCode, status, strings.TrimSpace(r.text))
	}
}

// receive returns the next value of c. The test fails if none comes.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing has come", what)
		panic("not reached")
	}
}

// A gate is a handler that reports each request and keeps it until it may
// leave.
type gate struct {
	inside chan *http.Request // gets each request that enters
	leave  chan struct{}      // each token, or its closing, lets go
	test   context.Context
}

func newGate(t *testing.T) *gate {
	return &gate{inside: make(chan *http.Request, 100), leave: make(chan struct{}), test: t.Context()}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.inside <- r
	stay(g.test, g.leave)
	_, _ = io.WriteString(w, "done")
}

// stay waits for leave, or for the end of a test that has failed. Otherwise its
// server could not be closed.
func stay(test context.Context, leave <-chan struct{}) {
	select {
	case <-leave:
	case <-test.Done():
	}
}

// start sends a GET of ada from another goroutine.
func start(t *testing.T, s *httptest.Server) <-chan reply {
	t.Helper()
	c := make(chan reply, 1)
	go func() {
		r, err := fetch(t.Context(), s, http.MethodGet, s.URL, nil)
		if err != nil {
			t.Error(err)
		}
		c <- r
	}()
	return c
}
