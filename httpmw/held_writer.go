package httpmw

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A heldWriter is the ResponseWriter of an admitted request.
//
// Invariant: while the lock is held the client does not have the whole
// response, unless the handler has hijacked the connection. The server ends
// most responses after the handler has returned. A heldWriter keeps back what
// would end the others earlier:
//
//   - of a response with a Content-Length, its last byte;
//   - of a response without a body, each Flush;
//   - of a response to HEAD, each Flush and what exceeds the server's buffer.
//
// It is used by one goroutine at a time, as any ResponseWriter.
type heldWriter struct {
	w    http.ResponseWriter
	lock *sqllock.Lock
	r    *http.Request // as it came
	body *heldBody     // nil: the request has none

	header http.Header // of w; nil until the handler asks for it
	state  writerState
	duplex bool // the handler writes while it reads

	length int64 // in counted: of the whole body
	left   int64 // in counted: bytes still to come; in head: bytes that still go to the server
	keeps  bool  // kept is a byte of the response
	kept   [1]byte
	closes bool // the connection must not serve another request

	encoded   bool        // Content-Encoding was set outside of the handler
	cutInside atomic.Bool // a Middleware within has cut a Read
}

// A writerState is how far a response has come, and how its end is kept back.
type writerState uint8

const (
	unbegun  writerState = iota // the handler has written nothing
	open                        // nothing is kept back
	counted                     // it has a Content-Length
	bodiless                    // it is complete with its header
	head                        // it answers HEAD
	hijacked
)

// headBuffer is how much of a body net/http buffers over HTTP/2 before it sends
// the header, and over HTTP/1 no less. The header ends a response to HEAD.
const headBuffer = 4 << 10

// newHeldWriter is for a request that is admitted, or that may wait.
func (m *Middleware) newHeldWriter(w http.ResponseWriter, r *http.Request) *heldWriter {
	if !hasBody(r) {
		return &heldWriter{w: w, r: r}
	}
	both := &struct { // one allocation
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

// contentLength is the length that the handler has declared. net/http ignores
// the same values. Middleware around may have declared it, too.
func (w *heldWriter) contentLength() (int64, bool) {
	value := w.Header().Get("Content-Length")
	if value == "" {
		return 0, false
	}
	length, err := strconv.ParseInt(value, 10, 64)
	return length, err == nil && length >= 0
}

// beforeHeader ends what would keep the server from writing the header.
func (w *heldWriter) beforeHeader() {
	if w.body != nil && w.body.beforeHeader(w.duplex) {
		w.w.Header().Set("Connection", "close")
		w.closes = true
	}
}

// handlerEnded is called however the handler has ended, also twice.
func (w *heldWriter) handlerEnded() {
	if w.body == nil {
		return
	}
	w.body.finish()
	if w.state == unbegun {
		w.beforeHeader()
	}
}

// end completes the response of a handler that has returned, after its lock has
// gone back. It breaks the connection if the server would use it again although
// a deadline has spoiled it, and it was too late for the header to say so.
func (w *heldWriter) end() {
	begun := w.state != unbegun && w.state != hijacked
	_ = w.release() // a client that has gone does not miss it
	if begun && w.body != nil && !w.closes && w.body.spoiled(w.duplex) {
		_ = http.NewResponseController(w.w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// noticeCut is called before a Middleware within cuts a Read of the body.
func (w *heldWriter) noticeCut() { w.cutInside.Store(true) }

// cutWithin reports whether ctx ended with the request's own context alone, and a
// Middleware within has cut a Read. The server takes that deadline for the
// client's leaving. The handler was not interrupted then.
func (w *heldWriter) cutWithin(ctx context.Context) bool {
	return w.cutInside.Load() && errors.Is(context.Cause(w.r.Context()), context.Cause(ctx)) &&
		!errors.Is(w.lock.Err(), sqllock.ErrLost)
}

// ofTheResponse are header fields that a handler may have set for a response
// that it did not write.
var ofTheResponse = []string{
	"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Range", "Content-Type",
	"Etag", "Last-Modified", "Trailer",
}

// reject writes the response of a handler that has written none. Middleware that
// compresses may have set Content-Encoding before: then it stays.
func (w *heldWriter) reject(m *Middleware, err error) {
	h := w.Header()
	for _, name := range ofTheResponse {
		if name != "Content-Encoding" || !w.encoded {
			h.Del(name)
		}
	}
	m.Reject(w.w, w.r, err)
}

// yield stops keeping anything back after the handler has given its lock back.
func (w *heldWriter) yield() {
	if w.state != open && w.state != hijacked && w.lock.Err() == sqllock.ErrReleased {
		_ = w.release() // the connection's error shows again in the next call
	}
}

// release sends what was kept back. The lock has been given back.
func (w *heldWriter) release() error {
	if w.state == hijacked {
		return nil
	}
	w.state = open
	return w.sendKept()
}

func (w *heldWriter) sendKept() error {
	if !w.keeps {
		return nil
	}
	w.keeps = false
	_, err := w.w.Write(w.kept[:])
	return err
}

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
	default: // too many: the server says so
		return n, nil
	}
}

// keep keeps b back, as the last byte of a body or as the one that makes the
// server send a header.
func (w *heldWriter) keep(b byte) {
	if w.state == counted {
		w.left--
	}
	if !w.keeps {
		w.kept[0], w.keeps = b, true
	}
}
