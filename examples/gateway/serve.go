package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// cutTimeout is how long requests have to end once they were cut off.
const cutTimeout = 5 * time.Second

// serve serves until ctx ends, and then stops in order:
//
//  1. It accepts no new requests.
//  2. Requests in flight may go on for grace. http.Server.Shutdown does not wait
//     for WebSockets, so serve counts all requests itself.
//  3. The contexts of the rest end. Their clients see an aborted response, and
//     their upstreams a cancelled request.
//
// All handlers have returned then, and so have released their locks, unless a
// client blocks one by not reading.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, grace time.Duration) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var inFlight sync.RWMutex // each request holds it for reading
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inFlight.RLock()
			defer inFlight.RUnlock()
			defer r.Body.Close() // after EnableFullDuplex the server would panic: golang/go#68560
			handler.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return work },
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      maxHold + time.Minute, // for a client that does not read
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}

	ctx = context.WithoutCancel(ctx)
	if drain(ctx, grace, server, &inFlight) != nil {
		cut()
		if drain(ctx, cutTimeout, server, &inFlight) != nil {
			err = errors.Join(err, errors.New("a request did not end when it was cut off"))
		}
	}
	return errors.Join(err, server.Close())
}

// drain waits until all requests have ended, WebSockets too, and their clients
// have the responses. Its error says that they took longer than timeout.
func drain(ctx context.Context, timeout time.Duration, server *http.Server, inFlight *sync.RWMutex) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		inFlight.Lock()
		defer inFlight.Unlock()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
