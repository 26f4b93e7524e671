// Package waiting lets package ratelimit report to the middleware in front of it
// that a request begins to wait.
package waiting

import "context"

// Key is the context key of a [Watcher].
type Key struct{}

// A Watcher has something to do before a request waits.
type Watcher interface {
	// WaitBegins is called by the goroutine of the request, which is in line
	// already. Its time counts for the wait: ctx ends with that.
	WaitBegins(ctx context.Context)
}

// WatcherOf returns the Watcher in ctx. It is nil if there is none.
func WatcherOf(ctx context.Context) Watcher {
	w, _ := ctx.Value(Key{}).(Watcher)
	return w
}
