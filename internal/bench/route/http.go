package route

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
)

// HTTP serves the route over HTTP/1.1, with a connection that is kept for each
// caller.
func HTTP(g *Guard, callers int) (Endpoint, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	handler := g.handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	r := &httpEndpoint{server: &http.Server{Handler: handler}, clients: make([]*httpClient, callers)} //nolint:gosec // loopback: no client is slow on purpose
	go func() { _ = r.server.Serve(listener) }()
	for i := range r.clients {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.clients[i] = &httpClient{conn: conn, in: bufio.NewReader(conn)}
	}
	return r, nil
}

type httpEndpoint struct {
	server  *http.Server
	clients []*httpClient
}

func (r *httpEndpoint) Call(_ context.Context, caller int, user string) error {
	return r.clients[caller].call(user)
}

func (r *httpEndpoint) Close() error {
	for _, c := range r.clients {
		if c != nil {
			_ = c.conn.Close()
		}
	}
	return r.server.Close()
}

// An httpClient asks over one connection and reads of the answer what it must:
// net/http's client would cost several times what is to be measured.
type httpClient struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func (c *httpClient) call(user string) error {
	c.out = append(c.out[:0], "GET / HTTP/1.1\r\nHost: bench\r\n"+userHeader+": "...)
	c.out = append(c.out, user...)
	c.out = append(c.out, "\r\n\r\n"...)
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	status, err := c.answer()
	switch {
	case err != nil:
		return err
	case status == http.StatusNoContent:
		return nil
	case status == http.StatusTooManyRequests:
		return ErrRefused
	}
	return fmt.Errorf("route: status %d", status)
}

var contentLength = []byte("Content-Length: ")

// answer reads a whole answer, which has a Content-Length or no body: a small
// one always has.
func (c *httpClient) answer() (status int, err error) {
	line, err := c.in.ReadSlice('\n') // "HTTP/1.1 204 No Content"
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, errors.New("route: no status line")
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
		if value, ok := bytes.CutPrefix(line, contentLength); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
	}
	_, err = io.CopyN(io.Discard, c.in, int64(length))
	return status, err
}
