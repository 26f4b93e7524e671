// Package routers shows packages httpmw and httpmw/idempotency behind chi, gin
// and echo. `go test -v .` runs its examples, which print the responses to a
// client. It is a module of its own, so that users of latchkey do not depend on
// the routers.
//
// chi takes net/http middleware as it is. gin and echo have middleware of their
// own: a few lines put Handler into it. An adapter for net/http middleware must
// run the framework's handler inside of the middleware's. An adapter that runs
// the middleware to its end first, such as fiber's HTTPMiddleware, has released
// the lock by then, and limits nothing.
package routers
