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

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(authenticate(h))
	t.Cleanup(s.Close)
	return s
}

// request sends a GET of ada's and reads the whole response.
func request(t *testing.T, s *httptest.Server) (status int, text string) {
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
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A handler that is interrupted without a response is no success, in every
// framework.
func TestInterrupted(t *testing.T) {
	for how, limit := range around {
		t.Run(how, func(t *testing.T) {
			l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(time.Millisecond))
			s := serve(t, limit(httpmw.New(l, httpmw.FromContext(userID)), func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				if !errors.Is(context.Cause(r.Context()), ratelimit.ErrMaxHold) {
					t.Errorf("cause %v, want ErrMaxHold", context.Cause(r.Context()))
				}
			}))
			if status, text := request(t, s); status != http.StatusServiceUnavailable || strings.Count(text, "{") != 1 {
				t.Errorf("status %d: %s", status, text)
			}
		})
	}
}

// A WebSocket works, and the lock covers it, in every framework.
func TestWebSocket(t *testing.T) {
	for how, limit := range around {
		t.Run(how, func(t *testing.T) {
			s := serve(t, limit(newLimit(), func(w http.ResponseWriter, r *http.Request) {
				conn, err := websocket.Accept(w, r, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.CloseNow()
				kind, text, err := conn.Read(r.Context())
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Write(r.Context(), kind, text)
				_, _, _ = conn.Read(r.Context()) // until the client closes
			}))
			header := http.Header{}
			header.Set("Authorization", "Basic YWRhOg==") // ada
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			conn, resp, err := websocket.Dial(ctx, s.URL+"/export", &websocket.DialOptions{HTTPHeader: header})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseNow()
			_ = resp
			if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			if _, text, err := conn.Read(ctx); err != nil || string(text) != "hello" {
				t.Errorf("echo %q, %v", text, err)
			}
			if status, _ := request(t, s); status != http.StatusTooManyRequests {
				t.Errorf("status %d while the WebSocket is open, want 429", status)
			}
			_ = conn.Close(websocket.StatusNormalClosure, "")
		})
	}
}

// Events arrive while the handler runs, in every framework.
func TestEvents(t *testing.T) {
	for how, limit := range around {
		t.Run(how, func(t *testing.T) {
			leave := make(chan struct{})
			s := serve(t, limit(newLimit(), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: 1\n\n")
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				<-leave
			}))
			defer close(leave)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/export", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetBasicAuth("ada", "")
			resp, err := s.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			event := make([]byte, len("data: 1\n\n"))
			if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != "data: 1\n\n" {
				t.Errorf("event %q, %v", event, err)
			}
		})
	}
}
