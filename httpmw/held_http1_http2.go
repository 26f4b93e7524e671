package httpmw

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// An http1Writer has the optional interfaces of net/http's ResponseWriter over
// HTTP/1. A type of one pointer needs no allocation as an interface.
type http1Writer struct{ *heldWriter }

func (w http1Writer) Flush() { flushingWriter(w).Flush() }

func (w http1Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return hijackingWriter(w).Hijack()
}

func (w http1Writer) ReadFrom(src io.Reader) (int64, error) { return copyingWriter(w).ReadFrom(src) }

func (w http1Writer) CloseNotify() <-chan bool {
	//lint:ignore SA1019 deprecated, but still used
	return w.w.(http.CloseNotifier).CloseNotify()
}

// An http2Writer has the optional interfaces of net/http's ResponseWriter over
// HTTP/2.
type http2Writer struct{ *heldWriter }

func (w http2Writer) Flush() { flushingWriter(w).Flush() }

func (w http2Writer) Push(target string, opts *http.PushOptions) error {
	return w.w.(http.Pusher).Push(target, opts)
}

func (w http2Writer) CloseNotify() <-chan bool {
	//lint:ignore SA1019 deprecated, but still used
	return w.w.(http.CloseNotifier).CloseNotify()
}
