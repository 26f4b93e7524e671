package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A running is a gateway that serves by serve.
type running struct {
	*front

	listener *listener
	stop     context.CancelFunc
	stopped  chan error
}

// A listener reports that it was closed.
type listener struct {
	net.Listener

	once   sync.Once
	closed chan struct{}
}

func (l *listener) Close() error {
	defer l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// serving starts serve, whose shutdown waits for grace.
func serving(t *testing.T, h http.Handler, grace time.Duration) *running {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{Listener: inner, closed: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	g := &running{&front{"http://" + l.Addr().String(), client}, l, stop, make(chan error, 1)}
	go func() { g.stopped <- serve(ctx, l, h, grace) }()
	t.Cleanup(stop)
	return g
}

// held returns whether a lock of locks is held for k1.
func held(t *testing.T, locks sqllock.Locker) bool {
	t.Helper()
	lock, err := locks.TryLock(t.Context(), sqllock.Namespace("gateway-key").SlotKey("id-k1", 0))
	if err != nil {
		return true
	}
	_ = lock.Unlock()
	return false
}

// An instance that stops lets streams end, and takes no new ones.
func TestShutdownWaits(t *testing.T) {
	t.Parallel()
	s, locks := newService(t), sqllock.NewMemory()
	g := serving(t, handler(t, locks, s), time.Hour)
	resp, e, _ := stream(t, g.front, s, "k1")
	g.stop()
	httptesting.Receive(t, g.listener.closed, "the end of the listener")
	e.send(t, "data: 2\n\n")
	e.end()
	if rest, err := io.ReadAll(resp.Body); string(rest) != "data: 2\n\n" || err != nil {
		t.Errorf("the stream ends with %q, %v", rest, err)
	}
	g.wantStopped(t, locks)
}

// A WebSocket counts as a request in flight, though http.Server has given it away.
func TestShutdownWaitsForWebSockets(t *testing.T) {
	t.Parallel()
	s, ended := newEcho(t)
	locks := sqllock.NewMemory()
	g := serving(t, handler(t, locks, s), time.Hour)
	conn, _, err := dial(t, g.front)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	g.stop()
	for range 10 {
		echoed(t, conn)
	}
	_ = conn.Close(websocket.StatusNormalClosure, "")
	httptesting.Receive(t, ended, "the end of the upstream's WebSocket")
	g.wantStopped(t, locks)
}

// wantStopped waits for the end of serve, after which no lock is held.
func (g *running) wantStopped(t *testing.T, locks sqllock.Locker) {
	t.Helper()
	if err := httptesting.Receive(t, g.stopped, "the end of serve"); err != nil || held(t, locks) {
		t.Errorf("it stops with %v, a lock is held: %v", err, held(t, locks))
	}
}

// When the grace is over, what is still in flight is cut off: clients see that,
// upstreams too, and no lock is held when serve returns.
func TestShutdownCuts(t *testing.T) {
	t.Parallel()
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		s, locks := newService(t), sqllock.NewMemory()
		g := serving(t, handler(t, locks, s), time.Millisecond)
		resp, e, _ := stream(t, g.front, s, "k1")
		g.stop()
		if rest, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("the body ends cleanly after %q", rest)
		}
		httptesting.Receive(t, e.left, "the end of the upstream's request")
		g.wantStopped(t, locks)
	})
	t.Run("before the response", func(t *testing.T) {
		t.Parallel()
		s, locks := newService(t), sqllock.NewMemory()
		g := serving(t, handler(t, locks, s), time.Millisecond)
		go func() {
			<-s.requests
			g.stop()
		}()
		resp, _ := begin(t, g.front, "k1")
		wantProblem(t, resp, http.StatusServiceUnavailable)
		g.wantStopped(t, locks)
	})
	t.Run("WebSocket", func(t *testing.T) {
		t.Parallel()
		s, ended := newEcho(t)
		locks := sqllock.NewMemory()
		g := serving(t, handler(t, locks, s), time.Millisecond)
		conn, _, err := dial(t, g.front)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		g.stop()
		if _, _, err := conn.Read(t.Context()); err == nil {
			t.Error("the WebSocket lives on")
		}
		httptesting.Receive(t, ended, "the end of the upstream's WebSocket")
		g.wantStopped(t, locks)
	})
}

// A client of a WebSocket that does not read keeps no place, and delays no
// shutdown, once its request has been cut off.
func TestShutdownCutsClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	s, ended, flooded := newFlood(t)
	locks := sqllock.NewMemory()
	g := serving(t, handler(t, locks, s), time.Millisecond)
	conn, _, err := dial(t, g.front)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("flood")); err != nil {
		t.Fatal(err)
	}
	for last := int64(-1); flooded.Load() == 0 || flooded.Load() != last; { // until nothing moves any more
		last = flooded.Load()
		time.Sleep(100 * time.Millisecond) // a slow machine may seem full too early, which is the easier case
	}
	g.stop()
	httptesting.Receive(t, ended, "the end of the upstream's WebSocket")
	g.wantStopped(t, locks)
}

// An upstream that is down is 502, and its requests hold no place. A connection
// serves the next request after one whose body no upstream has read.
func TestUpstreamDown(t *testing.T) {
	t.Parallel()
	down := &service{Server: &httptest.Server{URL: "http://127.0.0.1:1"}}
	g := serving(t, handler(t, sqllock.NewMemory(), down), time.Hour)
	for n := range perKey + 1 {
		r, _ := request(t, http.MethodPost, g.URL, "k1", `{"prompt":"hello"}`)
		reused := false
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
		resp, err := g.client.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadGateway || reused != (n > 0) {
			t.Errorf("request %d: status %d, on a used connection: %v", n+1, resp.StatusCode, reused)
		}
	}
	g.stop()
	if err := httptesting.Receive(t, g.stopped, "the end of serve"); err != nil {
		t.Error(err)
	}
}
