package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A service is the upstream of a test. Each request waits until the test has
// given it what to do.
type service struct {
	*httptest.Server

	requests chan *exchange
	ended    chan struct{} // one for each WebSocket that has ended
	flooded  atomic.Int64  // the megabytes that were written to clients that have sent "flood"
}

// An exchange is a request that the upstream has got.
type exchange struct {
	w    http.ResponseWriter
	r    *http.Request
	do   chan func(*exchange)
	left chan struct{} // closed when the handler has returned
}

// newService starts an upstream.
func newService(t *testing.T) *service {
	t.Helper()
	s := &service{requests: make(chan *exchange, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &exchange{w, r, make(chan func(*exchange)), make(chan struct{})}
		defer close(e.left)
		s.requests <- e
		for {
			select {
			case do, more := <-e.do:
				if !more {
					return
				}
				do(e)
			case <-r.Context().Done():
				return
			case <-t.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(s.Server.Close)
	return s
}

// next returns the next request that arrives.
func (s *service) next(t *testing.T) *exchange {
	t.Helper()
	return httptesting.Receive(t, s.requests, "a request at the upstream")
}

// send writes text and flushes it.
func (e *exchange) send(t *testing.T, text string) {
	t.Helper()
	sent := make(chan error, 1)
	e.do <- func(e *exchange) {
		_, err := io.WriteString(e.w, text)
		sent <- errors.Join(err, http.NewResponseController(e.w).Flush())
	}
	if err := httptesting.Receive(t, sent, "a flush"); err != nil {
		t.Fatal(err)
	}
}

// end lets the handler return.
func (e *exchange) end() { close(e.do) }

// The plan of tenant a.
const (
	perKey    = 4
	perTenant = 20
)

// table has the keys k1 to k6 of tenant a, and a key of tenant b with a smaller plan.
func table() accounts {
	table := make(accounts)
	for key, tenant := range map[string]string{"k1": "a", "k2": "a", "k3": "a", "k4": "a", "k5": "a", "k6": "a", "other": "b"} {
		sum := sha256.Sum256([]byte(key))
		plan := map[string]string{"a": "pro", "b": "free"}[tenant]
		table[hex.EncodeToString(sum[:])] = account{ID: "id-" + key, Tenant: tenant, Plan: plan}
	}
	return table
}

// handler returns the gateway in front of s.
func handler(t *testing.T, locks sqllock.Locker, s *service) http.Handler {
	t.Helper()
	upstream, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return table().authenticate(limited(locks, newProxy(upstream)))
}

// A front is a gateway as its clients see it.
type front struct {
	URL    string
	client *http.Client
}

func newFront(s *httptest.Server) *front { return &front{s.URL, s.Client()} }

// newGateway starts an upstream, and a gateway in front of it.
func newGateway(t *testing.T) (*service, *front) {
	t.Helper()
	s := newService(t)
	return s, newFront(httptesting.Serve(t, handler(t, sqllock.NewMemory(), s)))
}

// request returns a request with an API key. Its context ends with cancel, or with
// the test.
func request(t *testing.T, method, url, key, body string) (r *http.Request, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	return r, cancel
}

// begin sends a request and returns its response as soon as the header is there.
func begin(t *testing.T, g *front, key string) (resp *http.Response, cancel func()) {
	t.Helper()
	r, cancel := request(t, http.MethodPost, g.URL, key, `{"prompt":"hello"}`)
	return g.send(t, r)(), cancel
}

// stream begins a stream that has its first token.
func stream(t *testing.T, g *front, s *service, key string) (resp *http.Response, e *exchange, cancel func()) {
	t.Helper()
	r, cancel := request(t, http.MethodPost, g.URL, key, `{"prompt":"hello"}`)
	header := g.send(t, r)
	e = s.next(t)
	e.w.Header().Set("Content-Type", "text/event-stream")
	e.send(t, "data: 1\n\n")
	resp = header()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, want 200", resp.StatusCode)
	}
	read(t, resp, "data: 1\n\n")
	return resp, e, cancel
}

// send sends r in the background. header waits for the header of its response.
func (g *front) send(t *testing.T, r *http.Request) (header func() *http.Response) {
	type outcome struct {
		resp *http.Response
		err  error
	}
	begun := make(chan outcome, 1)
	go func() {
		resp, err := g.client.Do(r)
		begun <- outcome{resp, err}
	}()
	return func() *http.Response {
		t.Helper()
		o := httptesting.Receive(t, begun, "the header of a response")
		if o.err != nil {
			t.Fatal(o.err)
		}
		t.Cleanup(func() { o.resp.Body.Close() })
		return o.resp
	}
}

// read wants the next bytes of a response.
func read(t *testing.T, resp *http.Response, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// wantRejected wants 429 with everything that a client needs.
func wantRejected(t *testing.T, resp *http.Response, limit string) {
	t.Helper()
	wantProblem(t, resp, http.StatusTooManyRequests)
	var problem struct{ Detail string }
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil || !strings.Contains(problem.Detail, limit) {
		t.Errorf("detail %q, %v; want the limit %s", problem.Detail, err, limit)
	}
}

// wantProblem wants a problem with Retry-After.
func wantProblem(t *testing.T, resp *http.Response, status int) {
	t.Helper()
	if resp.StatusCode != status {
		t.Fatalf("status %d, want %d", resp.StatusCode, status)
	}
	if resp.Header.Get("Retry-After") == "" || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("header %v; want Retry-After and a problem", resp.Header)
	}
}

// admitted waits until a request with key is admitted.
func admitted(t *testing.T, g *front, s *service, key string) {
	t.Helper()
	for deadline := time.Now().Add(httptesting.Patience); ; {
		done := make(chan int, 1)
		go func() {
			r, _ := request(t, http.MethodGet, g.URL, key, "")
			resp, err := g.client.Do(r)
			if err != nil {
				done <- 0
				return
			}
			done <- resp.StatusCode
			resp.Body.Close()
		}()
		select {
		case e := <-s.requests:
			e.end()
			if status := httptesting.Receive(t, done, "a response"); status != http.StatusOK {
				t.Fatalf("status %d, want 200", status)
			}
			return
		case status := <-done:
			if status != http.StatusTooManyRequests || time.Now().After(deadline) {
				t.Fatalf("status %d; the place is not free", status)
			}
		}
	}
}

// full uses all places of a key with streams.
func full(t *testing.T, g *front, s *service, key string) (first *http.Response, e *exchange, cancel func()) {
	t.Helper()
	first, e, cancel = stream(t, g, s, key)
	for range perKey - 1 {
		stream(t, g, s, key)
	}
	resp, _ := begin(t, g, key)
	wantRejected(t, resp, "gateway-key")
	return first, e, cancel
}
