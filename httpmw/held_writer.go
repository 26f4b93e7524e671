package httpmw

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/admission"
)

// A heldWriter is the ResponseWriter of an admitted request.
//
// Invariant: while a lock is held the client does not have the whole response,
// unless the handler has hijacked the connection. The server ends
// most responses after the handler has returned. A heldWriter keeps back what
// would end the others earlier:
//
//   - of a response with a Content-Length, its last byte;
//   - of a response without a body, each Flush;
//   - of a response to HEAD, each Flush and what exceeds the server's buffer.
//
// It is used by one goroutine at a time, as any ResponseWriter.
type heldWriter struct {
	w     http.ResponseWriter
	locks admission.Held // those that the handler's context carries
	r     *http.Request  // the original request
	body  *heldBody      // nil if the request has none

	header http.Header // of w; nil until the handler asks for it
	state  writerState
	duplex bool // the handler writes while it reads

	length int64 // if counted: bytes of the whole body
	left   int64 // if counted: bytes still to come; if head: bytes that still go to the server
	keeps  bool  // kept is a byte of the response
	kept   [1]byte
	closes bool // the connection must not serve another request

	encoded   bool        // Content-Encoding was set outside of the handler
	cutInside atomic.Bool // an inner Middleware has cut a Read
}

// A writerState says how far a response has come, and how its end is kept back.
type writerState uint8

const (
	unbegun  writerState = iota // the handler has written nothing
	open                        // nothing is kept back
	counted                     // the response has a Content-Length
	bodiless                    // the response is complete with its header
	head                        // the response is to HEAD
	hijacked                    // the handler has taken the connection over
)

// headBuffer is how many bytes of a body net/http buffers over HTTP/2 before it
// sends the header. Over HTTP/1 it buffers at least as many. The header ends a
// response to HEAD.
const headBuffer = 4 << 10

// newHeldWriter returns the heldWriter of a request that is admitted, or may
// wait.
func (m *Middleware) newHeldWriter(w http.ResponseWriter, r *http.Request) *heldWriter {
	if !hasBody(r) {
		return &heldWriter{w: w, r: r}
	}
	both := &struct { // one allocation for both
		heldWriter
		body heldBody
	}{heldWriter: heldWriter{w: w, r: r}}
	b := &both.body
	both.heldWriter.body = b
	b.ReadCloser, b.w, b.outer, b.reads = r.Body, w, r, &m.reads
	b.ahead.Context, b.ahead.body, b.ahead.w, b.ahead.r, b.ahead.all = r.Context(), r.Body, w, r, &m.ahead
	return &both.heldWriter
}

// begin finds out how the response with status ends.
func (w *heldWriter) begin(status int) {
	w.beforeHeader()
	length, declared := w.contentLength()
	switch {
	case status == http.StatusSwitchingProtocols:
		w.state = open
	case w.r.Method == http.MethodHead:
		w.state, w.left = head, headBuffer
	case status == http.StatusNoContent, status == http.StatusNotModified, declared && length == 0:
		w.state = bodiless
	case declared:
		w.state, w.length, w.left = counted, length, length
	default:
		w.state = open
	}
}

// contentLength returns the length that the handler, or one around, has
// declared. It ignores the same values as net/http.
func (w *heldWriter) contentLength() (int64, bool) {
	value := w.Header().Get("Content-Length")
	if value == "" {
		return 0, false
	}
	length, err := strconv.ParseInt(value, 10, 64)
	return length, err == nil && length >= 0
}

// beforeHeader ends a Read that would block the server from writing the header.
func (w *heldWriter) beforeHeader() {
	if w.body != nil && w.body.beforeHeader(w.duplex) {
		w.w.Header().Set("Connection", "close")
		w.closes = true
	}
}

// Header returns the header of the response.
func (w *heldWriter) Header() http.Header {
	if w.header == nil {
		w.body.settle()
		w.header = w.w.Header()
		_, w.encoded = w.header["Content-Encoding"]
	}
	return w.header
}

// WriteHeader begins the response, unless status is informational.
func (w *heldWriter) WriteHeader(status int) {
	if w.state == unbegun && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.begin(status)
	}
	w.w.WriteHeader(status)
}

func (w *heldWriter) Write(p []byte) (int, error) {
	now, err := w.admit(len(p))
	if err != nil {
		return 0, err
	}
	n, err := w.w.Write(p[:now])
	if w.left -= int64(n); err != nil || n < now || n == len(p) {
		return n, err
	}
	w.keep(p[now])
	return len(p), nil
}

func (w *heldWriter) WriteString(s string) (int, error) {
	now, err := w.admit(len(s))
	if err != nil {
		return 0, err
	}
	n, err := io.WriteString(w.w, s[:now])
	if w.left -= int64(n); err != nil || n < now || n == len(s) {
		return n, err
	}
	w.keep(s[now])
	return len(s), nil
}

// admit reports how many of the next n bytes go to the server now. The caller
// keeps the byte after them, if there is one.
func (w *heldWriter) admit(n int) (now int, err error) {
	if w.state == unbegun {
		w.begin(http.StatusOK)
	}
	w.yield()
	switch {
	case w.state == head:
		return int(min(int64(n), w.left)), nil
	case w.state != counted || n == 0 || int64(n) < w.left:
		return n, nil
	case w.keeps:
		return 0, http.ErrContentLength
	case int64(n) == w.left:
		return n - 1, nil
	default: // too many: the server returns the error
		return n, nil
	}
}

// keep keeps b back. It is the last byte of a body, or the byte with which the
// server would send the header.
func (w *heldWriter) keep(b byte) {
	if w.state == counted {
		w.left--
	}
	if !w.keeps {
		w.kept[0], w.keeps = b, true
	}
}
