package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A running is a gateway that serves by serve.
type running struct {
	*front

	locks   *sqllock.Memory
	stop    context.CancelFunc
	stopped chan error
}

// serving starts serve in front of s. Its shutdown waits for grace.
func serving(t *testing.T, s *service, grace time.Duration) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	g := &running{&front{"http://" + listener.Addr().String(), client}, sqllock.NewMemory(), stop, make(chan error, 1)}
	h := handler(t, g.locks, s)
	go func() { g.stopped <- serve(ctx, listener, h, grace) }()
	return g
}

// wantStopped waits for the end of serve, after which no lock of k1 is held.
func (g *running) wantStopped(t *testing.T) {
	t.Helper()
	err := httptesting.Receive(t, g.stopped, "the end of serve")
	lock, lockErr := g.locks.TryLock(t.Context(), sqllock.Namespace("gateway-key").SlotKey("id-k1", 0))
	if err != nil || lockErr != nil {
		t.Errorf("it stops with %v, and TryLock: %v", err, lockErr)
	}
	_ = lock.Unlock()
}

// An instance that stops takes no new requests. Streams and WebSockets may go on
// for the grace, though http.Server has given the WebSockets away.
func TestShutdownWaits(t *testing.T) {
	t.Parallel()
	streams, sockets := newService(t), newEcho(t)
	a, b := serving(t, streams, time.Hour), serving(t, sockets, time.Hour)
	resp, e, _ := stream(t, a.front, streams, "k1")
	conn := open(t, b.front)
	for _, g := range []*running{a, b} {
		g.stop()
		lockertest.Eventually(t, "it takes no new requests", func() bool {
			conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
	}
	e.send(t, "data: 2\n\n")
	e.end()
	if rest, err := io.ReadAll(resp.Body); string(rest) != "data: 2\n\n" || err != nil {
		t.Errorf("the stream ends with %q, %v", rest, err)
	}
	a.wantStopped(t)
	echoed(t, conn)
	_ = conn.Close(websocket.StatusNormalClosure, "")
	b.wantStopped(t)
}

// When the grace is over, what is still in flight is cut off. Clients see that,
// upstreams too, and no lock is held when serve returns.
func TestShutdownCuts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		upstream func(t *testing.T) *service
		cut      func(t *testing.T, g *running, s *service)
	}{
		"stream": {newService, func(t *testing.T, g *running, s *service) {
			resp, e, _ := stream(t, g.front, s, "k1")
			g.stop()
			if rest, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("the body ends cleanly after %q", rest)
			}
			httptesting.Receive(t, e.left, "the end of the upstream's request")
		}},
		"before the response": {newService, func(t *testing.T, g *running, s *service) {
			go func() {
				<-s.requests
				g.stop()
			}()
			resp, _ := begin(t, g.front, "k1")
			wantProblem(t, resp, http.StatusServiceUnavailable)
		}},
		"WebSocket": {newEcho, func(t *testing.T, g *running, s *service) {
			conn := open(t, g.front)
			g.stop()
			if _, _, err := conn.Read(t.Context()); err == nil {
				t.Error("the WebSocket lives on")
			}
			httptesting.Receive(t, s.ended, "the end of the upstream's WebSocket")
		}},
		"WebSocket whose client does not read": {newEcho, func(t *testing.T, g *running, s *service) {
			write(t, open(t, g.front), "flood")
			for last := int64(-1); s.flooded.Load() == 0 || s.flooded.Load() != last; { // until nothing moves any more
				last = s.flooded.Load()
				time.Sleep(100 * time.Millisecond) // a slow machine may seem full too early, which is the easier case
			}
			g.stop()
			httptesting.Receive(t, s.ended, "the end of the upstream's WebSocket")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tt.upstream(t)
			g := serving(t, s, time.Millisecond)
			tt.cut(t, g, s)
			g.wantStopped(t)
		})
	}
}

// An upstream that is down is 502, and its requests hold no place. A connection
// serves the next request after one whose body no upstream has read.
func TestUpstreamDown(t *testing.T) {
	t.Parallel()
	down := &service{Server: &httptest.Server{URL: "http://127.0.0.1:1"}}
	g := serving(t, down, time.Hour)
	const requests = 5 * perKey
	reused := 0 // on a busy machine the client drops a connection now and then
	for n := range requests {
		r, _ := request(t, http.MethodPost, g.URL, "k1", `{"prompt":"hello"}`)
		onUsed := false
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { onUsed = c.Reused }}
		resp, err := g.client.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadGateway {
			t.Errorf("request %d: status %d, want 502", n+1, resp.StatusCode)
		}
		if onUsed {
			reused++
		}
	}
	if reused < requests*3/4 {
		t.Errorf("%d of %d requests were on a used connection", reused, requests)
	}
	g.stop()
	g.wantStopped(t)
}
