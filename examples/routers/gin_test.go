package routers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/latchkey-go/latchkey/httpmw"
)

// ginLimit is m for gin. Handler releases the lock before the client has the
// whole response, so the handlers inside must write to its ResponseWriter.
func ginLimit(m *httpmw.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		outer, admitted := c.Writer, false
		defer func() { c.Writer = outer }()
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			admitted = true
			c.Request, c.Writer = r, ginWriter{outer, w}
			c.Next() // here, not after: the handlers must run under the lock
		})).ServeHTTP(outer, c.Request)
		if !admitted {
			c.Abort() // or gin goes on to the handlers
		}
	}
}

// A ginWriter is gin's ResponseWriter that writes to w.
type ginWriter struct {
	gin.ResponseWriter
	w http.ResponseWriter
}

func (g ginWriter) WriteHeader(status int)               { g.w.WriteHeader(status) }
func (g ginWriter) Write(p []byte) (int, error)          { return g.w.Write(p) }
func (g ginWriter) WriteString(text string) (int, error) { return io.WriteString(g.w, text) }
func (g ginWriter) Flush()                               { g.w.(http.Flusher).Flush() }
func (g ginWriter) Unwrap() http.ResponseWriter          { return g.w }

func (g ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return g.w.(http.Hijacker).Hijack()
}

func Example_gin() {
	gin.SetMode(gin.ReleaseMode)
	limit := newLimit()

	router := gin.New()
	router.GET("/export", ginLimit(limit), func(c *gin.Context) { export(c.Writer, c.Request) })
	run(router)
	// Output:
	// ada is served under a lock: true
	// ada gets 429, Retry-After "1"
	// grace is served under a lock: true
	// grace gets 200, Retry-After ""
	// ada gets 200, Retry-After ""
	// anonymous gets 400, Retry-After ""
}

// Without Abort gin runs the handler all the same, after the rejection.
func Example_gin_incorrect() {
	gin.SetMode(gin.ReleaseMode)
	limit := newLimit()

	router := gin.New()
	router.GET("/export", func(c *gin.Context) {
		locks, err := limit.AcquireAll(c.Request)
		if err != nil {
			limit.Reject(c.Writer, c.Request, err)
			return
		}
		defer locks.Unlock()
		c.Next()
	}, func(*gin.Context) { fmt.Println("the handler runs") })

	s := httptest.NewServer(router)
	defer s.Close()
	get(s.URL+"/export", "") // without a user
	// Output:
	// the handler runs
	// anonymous gets 400, Retry-After ""
}
