package routers

import (
	"fmt"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

	"github.com/latchkey-go/latchkey/httpmw"
)

// ginLimit is m for gin.
func ginLimit(m *httpmw.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		lock, err := m.Acquire(c.Request)
		if err != nil {
			m.Reject(c.Writer, c.Request, err)
			c.Abort() // or gin goes on to the handler
			return
		}
		defer lock.Unlock()
		ctx, cancel := lock.Bind(c.Request.Context())
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		c.Next() // here, not after: the handler must run under the lock
	}
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
	// nobody gets 400, Retry-After ""
}

// Without Abort gin runs the handler all the same, behind the refusal.
func Example_gin_incorrect() {
	gin.SetMode(gin.ReleaseMode)
	limit := newLimit()

	router := gin.New()
	router.GET("/export", func(c *gin.Context) {
		lock, err := limit.Acquire(c.Request)
		if err != nil {
			limit.Reject(c.Writer, c.Request, err)
			return
		}
		defer lock.Unlock()
		c.Next()
	}, func(*gin.Context) { fmt.Println("the handler runs") })

	s := httptest.NewServer(router)
	defer s.Close()
	get(s.URL+"/export", "") // nobody
	// Output:
	// the handler runs
	// nobody gets 400, Retry-After ""
}
