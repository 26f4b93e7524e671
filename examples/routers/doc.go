// Package routers shows package httpmw behind other routers than net/http's:
// chi, gin and echo, as examples that run. It is a module of its own, so that
// they are not dependencies of latchkey's users.
//
// chi takes net/http middleware as it is. gin and echo have middleware of their
// own: there, Acquire and Reject do what Handler does. Whatever adapter turns
// net/http middleware into a framework's, see that it runs the handler inside:
// one that runs the middleware to its end first (fiber's HTTPMiddleware) has
// given the lock back by then, and limits nothing.
package routers
