package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// userHeader names the user of a request. Requests to the bare route carry it
// too, so that all requests are alike.
const userHeader = "User"

// A guard is a limiter of one request at a time for each user, in front of a
// route. hold takes the place of a user, as a request does.
type guard struct {
	handler func(http.Handler) http.Handler
	hold    func(ctx context.Context, user string) error
	close   func() error
}

func bareGuard(context.Context, *bench) (*guard, error) {
	return &guard{handler: func(h http.Handler) http.Handler { return h }, close: func() error { return nil }}, nil
}

func memoryGuard(context.Context, *bench) (*guard, error) {
	return kitGuard(sqllock.NewMemory(), func() error { return nil }), nil
}

func postgresGuard(ctx context.Context, b *bench) (*guard, error) {
	kit, err := locks.OpenKit(ctx, b.env, locks.Pgx)
	if err != nil {
		return nil, err
	}
	return kitGuard(kit.Session, kit.Close), nil
}

func kitGuard(l sqllock.Locker, close func() error) *guard {
	limiter := ratelimit.OneAtATime(l, "http")
	return &guard{
		handler: httpmw.New(limiter, httpmw.Header(userHeader)).Handler,
		hold: func(ctx context.Context, user string) error {
			_, err := limiter.Acquire(ctx, user) // it goes with its Session
			return err
		},
		close: close,
	}
}

// redisGuard is the limiter that people build by hand, on go-redis.
func redisGuard(ctx context.Context, b *bench) (*guard, error) {
	l, err := locks.Named(locks.GoRedis)[0].Open(ctx, b.env, httpClients)
	if err != nil {
		return nil, err
	}
	g := &guard{close: l.Close}
	g.handler = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			held, err := l.Acquire(r.Context(), r.Header.Get(userHeader))
			switch {
			case errors.Is(err, locks.ErrBusy):
				w.Header().Set("Retry-After", "1")
				http.Error(w, "busy", http.StatusTooManyRequests)
				return
			case err != nil:
				http.Error(w, "unavailable", http.StatusServiceUnavailable)
				return
			}
			defer func() { _ = held.Release(context.WithoutCancel(r.Context())) }() // its lifetime frees what could not be deleted
			next.ServeHTTP(w, r)
		})
	}
	var held locks.Held
	g.hold = func(ctx context.Context, user string) (err error) {
		held, err = l.Acquire(ctx, user)
		return err
	}
	g.close = func() error {
		if held != nil { // a key in Redis would outlive its client
			_ = held.Release(ctx)
		}
		return l.Close()
	}
	return g, nil
}

const httpClients = 64

// requests measures a route bare and behind limiters. Requests that are admitted
// and requests that are refused are measured apart; one that gets the other
// response is an error.
func requests(ctx context.Context, b *bench) error {
	const admitted, here, elsewhere = "admitted", "refused, held by the same instance", "refused, held by another instance"
	var all []contestant
	for _, c := range []struct {
		name, x, against string
		open             func(context.Context, *bench) (*guard, error)
	}{
		{"bare", admitted, "", bareGuard},
		{"latchkey, Memory", admitted, "bare", memoryGuard},
		{"latchkey, PostgreSQL", admitted, "bare", postgresGuard},
		{"Redis limiter", admitted, "bare", redisGuard},
		{"latchkey, PostgreSQL", here, "", postgresGuard},
		{"latchkey, PostgreSQL", elsewhere, "Redis limiter", postgresGuard},
		{"Redis limiter", elsewhere, "", redisGuard},
	} {
		all = append(all, contestant{name: c.name, x: c.x, against: c.against, redis: c.name == "Redis limiter" && c.x == admitted,
			measure: func(ctx context.Context) (r round, err error) {
				g, err := c.open(ctx, b)
				if err != nil {
					return r, err
				}
				defer func() { err = errors.Join(err, g.close()) }()
				users, status := names(httpClients), http.StatusNoContent
				if c.x != admitted {
					holder := g
					if c.x == elsewhere {
						if holder, err = c.open(ctx, b); err != nil {
							return r, err
						}
						defer func() { err = errors.Join(err, holder.close()) }()
					}
					if err := holder.hold(ctx, users[0]); err != nil {
						return r, err
					}
					for i := range users {
						users[i] = users[0]
					}
					status = http.StatusTooManyRequests
				}
				return b.measureRoute(ctx, g.handler, users, status)
			}})
	}
	return b.interleave(ctx, all)
}

// measureRoute has a client for each of users ask the route, each over a
// connection of its own.
func (b *bench) measureRoute(ctx context.Context, handler func(http.Handler) http.Handler, users []string, status int) (r round, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return r, err
	}
	route := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	server := &http.Server{Handler: handler(route)} //nolint:gosec // loopback: no client is slow on purpose
	go func() { _ = server.Serve(listener) }()
	defer func() { err = errors.Join(err, server.Close()) }()
	clients := make([]*client, len(users))
	for i, user := range users {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return r, err
		}
		defer conn.Close()
		clients[i] = &client{conn, bufio.NewReader(conn), []byte("GET / HTTP/1.1\r\nHost: bench\r\n" + userHeader + ": " + user + "\r\n\r\n")}
	}
	return b.run(ctx, load.Load{Callers: len(users), Op: func(_ context.Context, caller int) error {
		got, err := clients[caller].call()
		if err == nil && got != status {
			err = fmt.Errorf("status %d, want %d", got, status)
		}
		return err
	}})
}

// A client asks over one connection and reads of the response what it must:
// net/http's client would cost several times what is to be measured.
type client struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
}

// call reads a whole response, which has a Content-Length or no body: a small
// one always has.
func (c *client) call() (status int, err error) {
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	line, err := c.in.ReadSlice('\n') // "HTTP/1.1 204 No Content"
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, errors.New("no status line")
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	length := 0
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
	}
	_, err = io.CopyN(io.Discard, c.in, int64(length))
	return status, err
}
