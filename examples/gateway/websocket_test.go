package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// newEcho starts an upstream that echoes over WebSockets. It reports the end of
// each, and ends those that send "bye".
func newEcho(t *testing.T) (s *service, ended <-chan struct{}) {
	s, ended, _ = newFlood(t)
	return s, ended
}

// newFlood is newEcho. flooded counts the megabytes that were written to clients
// that have sent "flood".
func newFlood(t *testing.T) (s *service, ended <-chan struct{}, flooded *atomic.Int64) {
	t.Helper()
	ends := make(chan struct{}, 100)
	flooded = new(atomic.Int64)
	s = &service{requests: make(chan *exchange)} // for the address alone
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { ends <- struct{}{} }()
		defer conn.CloseNow()
		for {
			kind, text, err := conn.Read(context.WithoutCancel(r.Context()))
			if err != nil {
				return
			}
			if string(text) == "bye" { // it closes the connection; the client never does
				return
			}
			for string(text) == "flood" {
				if conn.Write(context.WithoutCancel(r.Context()), kind, make([]byte, 1<<20)) != nil {
					return
				}
				flooded.Add(1)
			}
			if conn.Write(r.Context(), kind, text) != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Server.Close)
	return s, ends, flooded
}

// dial opens a WebSocket through the gateway.
func dial(t *testing.T, g *front) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), httptesting.Patience)
	defer cancel()
	return websocket.Dial(ctx, g.URL, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer k1"}},
	})
}

// echoed wants conn to work.
func echoed(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := conn.Read(t.Context()); err != nil || string(text) != "hello" {
		t.Fatalf("echo %q, %v; want hello", text, err)
	}
}

// A WebSocket has its place for as long as it lives, however it ends.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		end  func(t *testing.T, conn *websocket.Conn, locks *sqllock.Memory)
		all  bool // it ends all of them
	}{
		{"client closes", func(_ *testing.T, conn *websocket.Conn, _ *sqllock.Memory) {
			_ = conn.Close(websocket.StatusNormalClosure, "")
		}, false},
		{"client vanishes", func(_ *testing.T, conn *websocket.Conn, _ *sqllock.Memory) { _ = conn.CloseNow() }, false},
		{"upstream closes", func(t *testing.T, conn *websocket.Conn, _ *sqllock.Memory) {
			if err := conn.Write(t.Context(), websocket.MessageText, []byte("bye")); err != nil {
				t.Error(err)
			}
		}, false},
		{"lock is lost", func(t *testing.T, conn *websocket.Conn, locks *sqllock.Memory) {
			locks.Lose()
			if _, _, err := conn.Read(t.Context()); err == nil {
				t.Error("the WebSocket lives on without its lock")
			}
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, ended := newEcho(t)
			locks := sqllock.NewMemory()
			g := newFront(httptesting.Serve(t, handler(t, locks, s)))
			var conns []*websocket.Conn
			for range perKey {
				conn, _, err := dial(t, g)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.CloseNow()
				conns = append(conns, conn)
			}
			_, resp, err := dial(t, g)
			if err == nil {
				t.Fatal("one WebSocket too many is admitted")
			}
			wantProblem(t, resp, http.StatusTooManyRequests)
			for _, conn := range conns {
				echoed(t, conn)
			}
			tt.end(t, conns[0], locks)
			httptesting.Receive(t, ended, "the end of the upstream's WebSocket")
			for deadline := time.Now().Add(httptesting.Patience); ; {
				conn, resp, err := dial(t, g)
				if err == nil {
					defer conn.CloseNow()
					echoed(t, conn)
					break
				}
				if resp == nil || resp.StatusCode != http.StatusTooManyRequests || time.Now().After(deadline) {
					t.Fatalf("the place is not free: %v", err)
				}
			}
			for _, conn := range conns[1:] {
				if !tt.all {
					echoed(t, conn)
				}
			}
		})
	}
}
