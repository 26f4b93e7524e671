// Package httptesting holds what the tests of the HTTP and the gRPC middleware
// share. It has servers on real sockets, handlers that keep a request until the
// test lets it go, and logs that a test reads.
//
// Everything that a function here opens is closed at the end of the test.
package httptesting

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Patience only ends a hang. No test depends on how much of it a wait needs.
// After bound.Lengthen a request may take 27 seconds to fail without a database.
const Patience = 60 * time.Second

// User is the header with the user of a request. It stands for authentication.
const User = "X-Test-User"

// A Protocol is a way to talk to a server.
type Protocol struct {
	Name  string
	Major int
}

// Protocols are those that the middleware supports. HTTP/2 is over TLS.
var Protocols = []Protocol{{"HTTP/1.1", 1}, {"HTTP/2", 2}}

// Serve starts a server on a socket. Its log, mostly of panics, is discarded.
func (p Protocol) Serve(tb testing.TB, h http.Handler) *httptest.Server {
	tb.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if p.Major == 2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	tb.Cleanup(s.Close)
	return s
}

// Serve starts a server of HTTP/1.1.
func Serve(tb testing.TB, h http.Handler) *httptest.Server {
	tb.Helper()
	return Protocols[0].Serve(tb, h)
}

// A Reply is a response with its whole body.
type Reply struct {
	*http.Response
	Text string
}

// Do sends req to s and reads the whole response.
func Do(s *httptest.Server, req *http.Request) (Reply, error) {
	resp, err := s.Client().Do(req)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return Reply{Response: resp, Text: string(text)}, err
}

// Want fails the test unless r has status.
func (r Reply) Want(tb testing.TB, status int) {
	tb.Helper()
	if r.StatusCode != status {
		tb.Fatalf("status %d, want %d: %s", r.StatusCode, status, strings.TrimSpace(r.Text))
	}
}

// Receive returns the next value of c. The test fails if none comes.
func Receive[T any](tb testing.TB, c <-chan T, what string) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		tb.Fatalf("%s: nothing has come", what)
		panic("not reached")
	}
}

// A Gate is a handler that reports each request and keeps it until it may
// leave.
type Gate struct {
	Inside chan *http.Request // gets each request that enters
	Leave  chan struct{}      // each token, or its closing, lets go
	test   context.Context
}

// NewGate returns a Gate that lets all go at the end of the test.
func NewGate(tb testing.TB) *Gate {
	return &Gate{Inside: make(chan *http.Request, 100), Leave: make(chan struct{}), test: tb.Context()}
}

func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.Inside <- r
	g.Stay()
	_, _ = io.WriteString(w, "done")
}

// Stay waits until the request may leave.
func (g *Gate) Stay() { Stay(g.test, g.Leave) }

// Stay waits for leave, or for the end of a test that has failed. Otherwise its
// server could not be closed.
func Stay(test context.Context, leave <-chan struct{}) {
	select {
	case <-leave:
	case <-test.Done():
	}
}
