// Package waiting lets package ratelimit report to the middleware in front of it
// that a request begins to wait.
package waiting

import "context"

// Key is the context key of a [Watcher].
type Key struct{}

// A Watcher has something to do while a request waits.
type Watcher interface {
	// WaitBegins is called right before the request waits, by its goroutine.
	WaitBegins()
}

// Begin reports to the Watcher in ctx that the request begins to wait. It does
// nothing without a Watcher.
func Begin(ctx context.Context) {
	if w, ok := ctx.Value(Key{}).(Watcher); ok {
		w.WaitBegins()
	}
}
