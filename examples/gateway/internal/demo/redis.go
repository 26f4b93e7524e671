package demo

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
)

// A counter is the limit that people build by hand on Redis: INCR before a
// request, DECR after it. Nothing counts down for a process that has been killed.
// The lifetime of a counter does not help while its key is in use: each request
// sets it again.
type counter struct {
	client *redis.Client
	max    int64
	next   http.Handler
}

const (
	countTimeout = 5 * time.Second // of a command
	lifetime     = time.Hour       // of a counter that is not used any more
	drainTimeout = 10 * time.Second
)

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := "inflight:" + r.Header.Get("Authorization")
	ctx, cancel := context.WithTimeout(r.Context(), countTimeout)
	defer cancel()
	var count *redis.IntCmd
	_, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		count = p.Incr(ctx, key)
		p.Expire(ctx, key, lifetime)
		return nil
	})
	if err != nil {
		http.Error(w, "The counter is unavailable.", http.StatusServiceUnavailable)
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), countTimeout)
		defer cancel()
		c.client.Decr(ctx, key) // an error leaks a place, as a kill does
	}()
	if count.Val() > c.max {
		http.Error(w, "Too many requests.", http.StatusTooManyRequests)
		return
	}
	c.next.ServeHTTP(w, r)
}

// counterGateway is a gateway that counts in Redis. It serves until ctx ends.
func (s Service) counterGateway(ctx context.Context, g *Gateway) error {
	options, err := redis.ParseURL(g.Redis)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	upstream, err := url.Parse(g.Upstream)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := &counter{client: client, max: perKey, next: s.Proxy(upstream)}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	g.Serving(listener.Addr().String())
	select {
	case err = <-failed:
		return err
	case <-ctx.Done():
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		return server.Shutdown(stopping) // what still runs counts down
	}
}
