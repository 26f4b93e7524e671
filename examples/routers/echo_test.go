package routers

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/latchkey-go/latchkey/httpmw"
)

// echoLimit is m for echo. It has echo respond to an error of the handler under
// the lock. A handler that fails because its context has ended was interrupted:
// Handler responds to that.
func echoLimit(m *httpmw.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer := c.Response()
			defer c.SetResponse(outer)
			m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil && r.Context().Err() == nil {
					c.Error(err)
				}
			})).ServeHTTP(outer, c.Request())
			return nil // there is a response
		}
	}
}

func Example_echo() {
	limit := newLimit()

	router := echo.New()
	router.GET("/export", func(c echo.Context) error {
		export(c.Response(), c.Request())
		return nil
	}, echoLimit(limit))
	run(router)
	// Output:
	// ada is served under a lock: true
	// ada gets 429, Retry-After "1"
	// grace is served under a lock: true
	// grace gets 200, Retry-After ""
	// ada gets 200, Retry-After ""
	// anonymous gets 400, Retry-After ""
}
