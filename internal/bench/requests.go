package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// userHeader names the user of a request.
const userHeader = "X-User"

// A guard puts a limiter in front of a handler.
type guard func(context.Context, *servers) (limit func(http.Handler) http.Handler, closeAll func() error, err error)

// requests measures a route that does nothing, over HTTP/1.1: bare, and with one
// request at a time for each user. Each client is a user of its own.
func requests(ctx context.Context, b *bench) error {
	const clients, bare = 64, "bare handler"
	var all []contestant
	for _, c := range []struct {
		name string
		open guard
	}{
		{bare, func(context.Context, *servers) (func(http.Handler) http.Handler, func() error, error) {
			return func(h http.Handler) http.Handler { return h }, func() error { return nil }, nil
		}},
		{"latchkey, pgx", guardOfKit},
		{"Redis limiter, go-redis", guardOf(onRedislock)},
		{"Redis limiter, rueidis", guardOf(onRueidis(rueidis.ClientOption{}))},
	} {
		all = append(all, contestant{name: c.name, x: strconv.Itoa(clients) + " clients", against: bare, redis: c.name != bare && c.name != "latchkey, pgx",
			measure: func(ctx context.Context) (r round, err error) {
				limit, closeAll, err := c.open(ctx, b.servers)
				if err != nil {
					return r, err
				}
				defer func() { err = errors.Join(err, closeAll()) }()
				route, err := serve(limit, clients)
				if err != nil {
					return r, err
				}
				defer func() { err = errors.Join(err, route.close()) }()
				return b.run(ctx, clients, func(_ context.Context, client int) error { return route.clients[client].get() })
			}})
	}
	return b.interleave(ctx, all)
}

// guardOfKit is httpmw with one Session.
func guardOfKit(ctx context.Context, s *servers) (func(http.Handler) http.Handler, func() error, error) {
	session, closeAll, err := openSession(ctx, s, "pgx")
	if err != nil {
		return nil, nil, err
	}
	user := func(r *http.Request) (string, error) { return r.Header.Get(userHeader), nil }
	return httpmw.New(ratelimit.OneAtATime(session, "request"), user).Handler, closeAll, nil
}

// guardOf is the middleware that people write around a lock.
func guardOf(open func(context.Context, *servers, int) (*locks, error)) guard {
	return func(ctx context.Context, s *servers) (func(http.Handler) http.Handler, func() error, error) {
		l, err := open(ctx, s, 0)
		if err != nil {
			return nil, nil, err
		}
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				release, err := l.acquire(r.Context(), r.Header.Get(userHeader))
				switch {
				case errors.Is(err, errBusy):
					w.WriteHeader(http.StatusTooManyRequests)
					return
				case err != nil:
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				defer func() { _ = release(context.WithoutCancel(r.Context())) }()
				next.ServeHTTP(w, r)
			})
		}, l.close, nil
	}
}

// A route is a server, and clients with a connection each.
type route struct {
	server  *http.Server
	clients []*client
}

func serve(limit func(http.Handler) http.Handler, clients int) (*route, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &route{server: &http.Server{ //nolint:gosec // loopback: no client is slow on purpose
		Handler: limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })),
	}}
	go func() { _ = r.server.Serve(listener) }()
	for n := range clients {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: bench\r\n%s: user-%d\r\n\r\n", userHeader, n)
		r.clients = append(r.clients, &client{conn, bufio.NewReader(conn), []byte(request)})
	}
	return r, nil
}

func (r *route) close() error {
	for _, c := range r.clients {
		_ = c.conn.Close()
	}
	return r.server.Close()
}

// A client sends one request again and again. It reads no more of the response
// than it must: the client of net/http would cost several times what is to be
// measured.
type client struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
}

func (c *client) get() error {
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	line, err := c.in.ReadSlice('\n')
	if err == nil && string(line) != "HTTP/1.1 204 No Content\r\n" {
		err = fmt.Errorf("the response was %q", line)
	}
	for err == nil && len(line) > len("\r\n") { // the headers
		line, err = c.in.ReadSlice('\n')
	}
	return err
}
