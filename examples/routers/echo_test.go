package routers

import (
	"github.com/labstack/echo/v4"

	"github.com/latchkey-go/latchkey/httpmw"
)

// echoLimit is m for echo.
func echoLimit(m *httpmw.Middleware) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			lock, err := m.Acquire(c.Request())
			if err != nil {
				m.Reject(c.Response(), c.Request(), err)
				return nil // answered: nothing is left for echo's error handler
			}
			defer lock.Unlock()
			ctx, cancel := lock.Bind(c.Request().Context())
			defer cancel()
			c.SetRequest(c.Request().WithContext(ctx))
			return next(c)
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
	// nobody gets 400, Retry-After ""
}

// echo.WrapMiddleware runs the handler inside of Handler, so that does, too.
func Example_echoWrapMiddleware() {
	limit := newLimit()

	router := echo.New()
	router.GET("/export", func(c echo.Context) error {
		export(c.Response(), c.Request())
		return nil
	}, echo.WrapMiddleware(limit.Handler))
	run(router)
	// Output:
	// ada is served under a lock: true
	// ada gets 429, Retry-After "1"
	// grace is served under a lock: true
	// grace gets 200, Retry-After ""
	// ada gets 200, Retry-After ""
	// nobody gets 400, Retry-After ""
}
