package httpmw

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
)

// An http1Writer has the optional interfaces of net/http's ResponseWriter over
// HTTP/1. Where the one below lacks an interface, the method does what it can,
// or fails with [http.ErrNotSupported]. A type of one pointer needs no
// allocation as an interface.
type http1Writer struct{ *heldWriter }

func (w http1Writer) Flush() { _ = w.FlushError() }

func (w http1Writer) CloseNotify() <-chan bool { return w.closeNotify() }

// Hijack takes the connection over. What was read of the body before a wait
// comes before what the server has buffered, as if it had not been read.
func (w http1Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.w).Hijack()
	if err != nil {
		return conn, rw, err
	}
	w.state = hijacked
	if unread := w.body.takeUnread(); len(unread) > 0 {
		behind, _ := rw.Reader.Peek(rw.Reader.Buffered())
		before := append(unread, behind...)
		rw.Reader = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(before), conn), max(len(before), rw.Reader.Size()))
		_, _ = rw.Reader.Peek(len(before)) // so that Buffered counts it
	}
	return conn, rw, err
}

// ReadFrom hands the server a reader that it recognizes: an *[io.LimitedReader]
// around the file itself, which the kernel copies.
func (w http1Writer) ReadFrom(src io.Reader) (n int64, err error) {
	before := w.state
	if before == unbegun {
		w.begin(http.StatusOK)
	}
	w.yield()
	to, ok := w.w.(io.ReaderFrom)
	switch {
	case !ok, w.state == bodiless, w.r.Method == http.MethodHead: // the server's ReadFrom would flush the header
		n, err = io.Copy(withoutReadFrom{w.heldWriter}, src)
	case w.state == counted:
		n, err = w.copyCounted(to, src)
	default:
		n, err = to.ReadFrom(src)
	}
	if before == unbegun && n == 0 && len(w.kept) == 0 { // an empty src begins no response
		w.state = unbegun
	}
	return n, err
}

// copyCounted copies all but the last byte of the body to the server, and the
// rest with Write. If src is limited itself, that limit is taken apart: the
// server recognizes one limit, not two.
func (w http1Writer) copyCounted(to io.ReaderFrom, src io.Reader) (n int64, err error) {
	part := &io.LimitedReader{R: src, N: max(0, w.left-1)}
	limited, ok := src.(*io.LimitedReader)
	if ok {
		part.R, part.N = limited.R, min(part.N, limited.N)
	}
	if limit := part.N; limit > 0 {
		n, err = to.ReadFrom(part)
		w.left -= n
		if ok {
			limited.N -= n
		}
		if err != nil || n < limit {
			return n, err
		}
	}
	rest, err := io.Copy(withoutReadFrom{w.heldWriter}, src)
	return n + rest, err
}

// A withoutReadFrom has only the Write of a heldWriter.
type withoutReadFrom struct{ held *heldWriter }

func (w withoutReadFrom) Write(p []byte) (int, error) { return w.held.Write(p) }

// An http2Writer has the optional interfaces of net/http's ResponseWriter over
// HTTP/2. It is like http1Writer otherwise.
type http2Writer struct{ *heldWriter }

func (w http2Writer) Flush() { _ = w.FlushError() }

func (w http2Writer) CloseNotify() <-chan bool { return w.closeNotify() }

func (w http2Writer) Push(target string, opts *http.PushOptions) error {
	if p, ok := w.w.(http.Pusher); ok {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// closeNotify returns a channel that gets a value when the client has left.
func (w *heldWriter) closeNotify() <-chan bool {
	//lint:ignore SA1019 deprecated, but still used
	if n, ok := w.w.(http.CloseNotifier); ok {
		return n.CloseNotify()
	}
	left := make(chan bool, 1)
	context.AfterFunc(w.r.Context(), func() { left <- true })
	return left
}
