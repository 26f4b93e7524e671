// Package routers shows package httpmw behind other routers than net/http's:
// chi, gin and echo, as examples that run. It is a module of its own, so that
// they are not dependencies of latchkey's users.
//
// chi takes net/http middleware as it is. gin and echo have middleware of their
// own: a few lines put Handler into it. An adapter for net/http middleware must run
// the framework's handler inside of the middleware's. One that runs the middleware
// to its end first, such as fiber's HTTPMiddleware, has given the lock back by then
// and limits nothing.
package routers
