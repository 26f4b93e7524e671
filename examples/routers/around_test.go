package routers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v4"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// around is the ways in which this page puts a limit around a handler.
var around = map[string]func(m *httpmw.Middleware, h http.HandlerFunc) http.Handler{
	"net/http": func(m *httpmw.Middleware, h http.HandlerFunc) http.Handler { return m.Handler(h) },
	"chi": func(m *httpmw.Middleware, h http.HandlerFunc) http.Handler {
		router := chi.NewRouter()
		router.Use(chimiddleware.Recoverer, chimiddleware.RequestID)
		router.With(m.Handler).HandleFunc("/export", h)
		return router
	},
	"gin": func(m *httpmw.Middleware, h http.HandlerFunc) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.Any("/export", ginLimit(m), func(c *gin.Context) { h(c.Writer, c.Request) })
		return router
	},
	"echo": func(m *httpmw.Middleware, h http.HandlerFunc) http.Handler {
		router := echo.New()
		router.Any("/export", func(c echo.Context) error {
			h(c.Response(), c.Request())
			return c.Request().Context().Err()
		}, echoLimit(m))
		return router
	},
}

// send sends a GET of ada's.
func send(t *testing.T, s *httptest.Server) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("ada", "")
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// What the middleware promises for net/http holds in every framework.
func TestAround(t *testing.T) {
	for _, tt := range []struct {
		name    string
		opts    []ratelimit.Option
		handler func(t *testing.T, w http.ResponseWriter, r *http.Request)
		client  func(t *testing.T, s *httptest.Server)
	}{
		{"an interrupted handler is no success", []ratelimit.Option{ratelimit.WithMaxHold(time.Millisecond)}, waitsForMaxHold, wantsProblem},
		{"events arrive while the handler runs", nil, sendsEvent, readsEvent},
		{"the lock covers a WebSocket", nil, greets, isGreeted},
	} {
		for how, limit := range around {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export", tt.opts...), httpmw.FromContext(userID))
				s := httptest.NewServer(authenticate(limit(m, func(w http.ResponseWriter, r *http.Request) { tt.handler(t, w, r) })))
				t.Cleanup(s.Close)
				s.Client().Timeout = 30 * time.Second
				tt.client(t, s)
			})
		}
	}
}

func waitsForMaxHold(t *testing.T, _ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	if cause := context.Cause(r.Context()); !errors.Is(cause, ratelimit.ErrMaxHold) {
		t.Errorf("cause %v, want ErrMaxHold", cause)
	}
}

func wantsProblem(t *testing.T, s *httptest.Server) {
	resp := send(t, s)
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || strings.Count(string(body), "{") != 1 {
		t.Errorf("status %d, %v: %s", resp.StatusCode, err, body)
	}
}

func sendsEvent(t *testing.T, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: 1\n\n")
	if err := http.NewResponseController(w).Flush(); err != nil {
		t.Error(err)
	}
	<-r.Context().Done() // until the client leaves
}

func readsEvent(t *testing.T, s *httptest.Server) {
	event := make([]byte, len("data: 1\n\n"))
	if _, err := io.ReadFull(send(t, s).Body, event); err != nil || string(event) != "data: 1\n\n" {
		t.Errorf("event %q, %v", event, err)
	}
}

func greets(t *testing.T, w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.CloseNow()
	_ = conn.Write(r.Context(), websocket.MessageText, []byte("hello"))
	_, _, _ = conn.Read(r.Context()) // until the client closes
}

func isGreeted(t *testing.T, s *httptest.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	header := http.Header{"Authorization": {"Basic YWRhOg=="}} // ada
	conn, _, err := websocket.Dial(ctx, s.URL+"/export", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if _, text, err := conn.Read(ctx); err != nil || string(text) != "hello" {
		t.Errorf("greeted %q, %v", text, err)
	}
	if status := send(t, s).StatusCode; status != http.StatusTooManyRequests {
		t.Errorf("status %d while the WebSocket is open, want 429", status)
	}
}
