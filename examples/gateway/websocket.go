package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
)

// endTogether makes both sides of a WebSocket end as soon as one has ended. It is
// a ModifyResponse of ReverseProxy, which otherwise waits for the other side too.
// A client that does not close its side could keep its place for ever then, though
// the upstream has gone.
func endTogether(resp *http.Response) error {
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = upgraded{conn}
	}
	return nil
}

var errEnded = errors.New("the upstream has ended the connection")

// An upgraded is the connection to the upstream. ReverseProxy ends both sides when
// Read fails with an error other than io.EOF, and when the client has ended a
// connection to an upstream without CloseWrite.
type upgraded struct{ io.ReadWriteCloser }

func (u upgraded) Read(p []byte) (int, error) {
	n, err := u.ReadWriteCloser.Read(p)
	if err == io.EOF {
		err = errEnded
	}
	return n, err
}

// A bounded closes the connection of a WebSocket's client when the context of its
// request ends. ReverseProxy closes that of the upstream alone. So a client that
// does not read could keep its place for ever.
type bounded struct {
	http.ResponseWriter
	ctx context.Context
}

func (b bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b bounded) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(b.ResponseWriter).Hijack()
	if err == nil {
		context.AfterFunc(b.ctx, func() { _ = conn.Close() })
	}
	return conn, buffered, err
}
