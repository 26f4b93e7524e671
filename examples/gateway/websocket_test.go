package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// newEcho starts an upstream that echoes over WebSockets. It ends those that send
// "bye".
func newEcho(t *testing.T) *service {
	t.Helper()
	s := &service{ended: make(chan struct{}, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { s.ended <- struct{}{} }()
		defer conn.CloseNow()
		for ctx := context.WithoutCancel(r.Context()); ; {
			kind, text, err := conn.Read(ctx)
			if err != nil || string(text) == "bye" { // it closes the connection; the client never does
				return
			}
			for string(text) == "flood" {
				if conn.Write(ctx, kind, make([]byte, 1<<20)) != nil {
					return
				}
				s.flooded.Add(1)
			}
			if conn.Write(ctx, kind, text) != nil {
				return
			}
		}
	}))
	t.Cleanup(s.Server.Close)
	return s
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

// open opens a WebSocket, which must be admitted.
func open(t *testing.T, g *front) *websocket.Conn {
	t.Helper()
	conn, _, err := dial(t, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func write(t *testing.T, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// echoed wants conn to work.
func echoed(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	write(t, conn, "hello")
	if _, text, err := conn.Read(t.Context()); err != nil || string(text) != "hello" {
		t.Fatalf("echo %q, %v; want hello", text, err)
	}
}

// A WebSocket has its place for as long as it lives, however it ends.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, conn *websocket.Conn, locks *sqllock.Memory){
		"client closes": func(_ *testing.T, conn *websocket.Conn, _ *sqllock.Memory) {
			_ = conn.Close(websocket.StatusNormalClosure, "")
		},
		"client vanishes": func(_ *testing.T, conn *websocket.Conn, _ *sqllock.Memory) { _ = conn.CloseNow() },
		"upstream closes": func(t *testing.T, conn *websocket.Conn, _ *sqllock.Memory) { write(t, conn, "bye") },
		"locks are lost": func(t *testing.T, conn *websocket.Conn, locks *sqllock.Memory) {
			locks.Lose()
			if _, _, err := conn.Read(t.Context()); err == nil {
				t.Error("the WebSocket lives on without its lock")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, locks := newEcho(t), sqllock.NewMemory()
			g := newFront(httptesting.Serve(t, handler(t, locks, s)))
			var conns []*websocket.Conn
			for range perKey {
				conns = append(conns, open(t, g))
			}
			_, resp, err := dial(t, g)
			if err == nil {
				t.Fatal("one WebSocket too many is admitted")
			}
			wantProblem(t, resp, http.StatusTooManyRequests)
			end(t, conns[0], locks)
			httptesting.Receive(t, s.ended, "the end of the upstream's WebSocket")
			lockertest.Eventually(t, "the place is free", func() bool {
				conn, _, err := dial(t, g)
				if err == nil {
					conns[0] = conn
					t.Cleanup(func() { _ = conn.CloseNow() })
				}
				return err == nil
			})
			for _, conn := range conns {
				if name != "locks are lost" || conn == conns[0] { // that ends all
					echoed(t, conn)
				}
			}
		})
	}
}
