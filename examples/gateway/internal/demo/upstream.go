package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// An upstream is the service behind the gateways: it streams tokens as a language
// model does, until its client leaves.
type upstream struct {
	url    string
	server *http.Server
	failed chan error

	inFlight atomic.Int64 // streams
}

// tokenEvery is the pause between two tokens of a stream.
const tokenEvery = time.Second

func startUpstream() (*upstream, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{url: "http://" + listener.Addr().String(), failed: make(chan error, 1)}
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: 10 * time.Second}
	go func() { u.failed <- u.server.Serve(listener) }()
	return u, nil
}

// ServeHTTP streams server-sent events.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.inFlight.Add(1)
	defer u.inFlight.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(tokenEvery)
	defer ticker.Stop()
	for n := 1; ; n++ {
		if _, err := fmt.Fprintf(w, "data: token %d\n\n", n); err != nil {
			return
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

// close ends the service and its streams.
func (u *upstream) close() error {
	err := u.server.Close()
	if serveErr := <-u.failed; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// awaitInFlight waits until n streams are in flight.
func (u *upstream) awaitInFlight(ctx context.Context, n int64) error {
	for u.inFlight.Load() != n {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d streams are in flight, not %d: %w", u.inFlight.Load(), n, context.Cause(ctx))
		}
	}
	return nil
}
