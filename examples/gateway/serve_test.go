package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A running is a gateway that serves by serve.
type running struct {
	*front

	stop    context.CancelFunc
	stopped chan error
}

// run starts serve, whose shutdown waits for grace.
func run(t *testing.T, h http.Handler, grace time.Duration) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	g := &running{&front{"http://" + listener.Addr().String(), client}, stop, make(chan error, 1)}
	go func() { g.stopped <- serve(ctx, listener, h, grace) }()
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
	g := run(t, handler(t, locks, s), time.Hour)
	resp, e, _ := stream(t, g.front, s, "k1")
	g.stop()
	for deadline := time.Now().Add(httptesting.Patience); ; {
		conn, err := net.Dial("tcp", resp.Request.URL.Host)
		if err != nil {
			break // it does not listen any more
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("it still listens")
		}
	}
	e.send(t, "data: 2\n\n")
	e.end()
	if rest, err := io.ReadAll(resp.Body); string(rest) != "data: 2\n\n" || err != nil {
		t.Errorf("the stream ends with %q, %v", rest, err)
	}
	if err := httptesting.Receive(t, g.stopped, "the end of serve"); err != nil {
		t.Error(err)
	}
	if held(t, locks) {
		t.Error("a lock is held after the shutdown")
	}
}

// A WebSocket counts as a request in flight, though http.Server has given it away.
func TestShutdownWaitsForWebSockets(t *testing.T) {
	t.Parallel()
	s, ended := newEcho(t)
	locks := sqllock.NewMemory()
	g := run(t, handler(t, locks, s), time.Hour)
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
	if err := httptesting.Receive(t, g.stopped, "the end of serve"); err != nil {
		t.Error(err)
	}
	if held(t, locks) {
		t.Error("a lock is held after the shutdown")
	}
}

// When the grace is over, what is still in flight is cut off: clients see that,
// upstreams too, and no lock is held when serve returns.
func TestShutdownCuts(t *testing.T) {
	t.Parallel()
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		s, locks := newService(t), sqllock.NewMemory()
		g := run(t, handler(t, locks, s), time.Millisecond)
		resp, e, _ := stream(t, g.front, s, "k1")
		g.stop()
		if rest, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("the body ends cleanly after %q", rest)
		}
		httptesting.Receive(t, e.left, "the end of the upstream's request")
		if err := httptesting.Receive(t, g.stopped, "the end of serve"); err != nil || held(t, locks) {
			t.Errorf("it stops with %v, a lock is held: %v", err, held(t, locks))
		}
	})
	t.Run("before the response", func(t *testing.T) {
		t.Parallel()
		s, locks := newService(t), sqllock.NewMemory()
		g := run(t, handler(t, locks, s), time.Millisecond)
		go func() {
			<-s.requests
			g.stop()
		}()
		resp, _ := begin(t, g.front, "k1")
		wantProblem(t, resp, http.StatusServiceUnavailable)
		if err := httptesting.Receive(t, g.stopped, "the end of serve"); err != nil || held(t, locks) {
			t.Errorf("it stops with %v, a lock is held: %v", err, held(t, locks))
		}
	})
	t.Run("WebSocket", func(t *testing.T) {
		t.Parallel()
		s, ended := newEcho(t)
		locks := sqllock.NewMemory()
		g := run(t, handler(t, locks, s), time.Millisecond)
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
		if err := httptesting.Receive(t, g.stopped, "the end of serve"); err != nil || held(t, locks) {
			t.Errorf("it stops with %v, a lock is held: %v", err, held(t, locks))
		}
	})
}

// A client of a WebSocket that does not read keeps no place, and delays no
// shutdown, once its request has been cut off.
func TestShutdownCutsClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	s, ended, flooded := newFlood(t)
	locks := sqllock.NewMemory()
	g := run(t, handler(t, locks, s), time.Millisecond)
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
	if err := httptesting.Receive(t, g.stopped, "the end of serve"); err != nil || held(t, locks) {
		t.Errorf("it stops with %v, a lock is held: %v", err, held(t, locks))
	}
}

// A connection serves the next request after one whose body no upstream has read.
func TestUnreadBody(t *testing.T) {
	t.Parallel()
	s := newService(t)
	g := run(t, handler(t, sqllock.NewMemory(), s), time.Hour)
	s.Server.Close()
	for n := range 3 {
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
