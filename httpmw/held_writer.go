package httpmw

import (
	"errors"
	"io"
	"net/http"
	"reflect"
	"strconv"

	"github.com/latchkey-go/latchkey/internal/admission"
)

// A heldWriter is the ResponseWriter of a handler. It notices whether the
// handler has begun a response.
//
// Invariant: while a lock is held the client does not have the whole response.
// Exceptions are a hijacked connection and a response to HEAD that was flushed.
// The server ends most responses after the handler has returned. A heldWriter
// keeps back what would end the others earlier:
//
//   - of a response with a Content-Length, its last byte;
//   - of a response without a body, each Flush;
//   - of a response to HEAD over HTTP/2, what exceeds the server's buffer.
//
// It is used by one goroutine at a time, as any ResponseWriter. A handler gets
// it as an http1Writer or http2Writer.
type heldWriter struct {
	m     *Middleware
	w     http.ResponseWriter
	r     *http.Request  // the original request
	locks admission.Held // those that the handler's context carries
	body  *heldBody      // nil if the request has none

	state  writerState
	duplex bool // the handler writes while it reads
	closes bool // the header says that the connection ends

	length   int64   // if counted: bytes of the whole body
	left     int64   // if counted: bytes still to come; if buffered: bytes that the server's buffer has room for
	kept     []byte  // what is kept back
	keptByte [1]byte // room for one, without an allocation

	encoded bool // Content-Encoding was set outside of the handler
}

// A writerState says how far a response has come, and how its end is kept back.
type writerState uint8

const (
	unbegun  writerState = iota // the handler has written nothing
	open                        // nothing is kept back
	counted                     // the response has a Content-Length
	bodiless                    // the response is complete with its header
	buffered                    // the response is to HEAD, over HTTP/2: its header follows what the server buffers
	hijacked                    // the handler has taken the connection over
)

const (
	// serverBuffer is how many bytes of a body net/http buffers over HTTP/2
	// before it sends the header.
	serverBuffer = 4 << 10

	// mostKept is how much of the body of a response to HEAD is kept back. A
	// ResponseWriter around may make a Content-Length or an ETag of it.
	mostKept = 64 << 10
)

func (m *Middleware) newHeldWriter(w http.ResponseWriter, r *http.Request) *heldWriter {
	_, encoded := w.Header()["Content-Encoding"]
	return &heldWriter{m: m, w: w, r: r, encoded: encoded}
}

// exposed returns w with the optional interfaces of net/http's ResponseWriter.
func (w *heldWriter) exposed() http.ResponseWriter {
	if w.r.ProtoMajor >= 2 {
		return http2Writer{w}
	}
	return http1Writer{w}
}

// begin finds out how the response with status ends.
func (w *heldWriter) begin(status int) {
	w.closeIfCut()
	length, declared := w.contentLength()
	switch {
	case status == http.StatusSwitchingProtocols:
		w.state = open
	case w.r.Method == http.MethodHead && w.r.ProtoMajor >= 2:
		w.state, w.left = buffered, serverBuffer
	case status == http.StatusNoContent, status == http.StatusNotModified, declared && length == 0:
		w.state = bodiless
	case declared && w.r.Method != http.MethodHead:
		w.state, w.length, w.left = counted, length, length
	default: // HEAD over HTTP/1, too: the server sends nothing before it is flushed
		w.state = open
	}
}

// contentLength returns the length that the handler, or one around, has
// declared. It ignores the same values as net/http.
func (w *heldWriter) contentLength() (int64, bool) {
	value := w.w.Header().Get("Content-Length")
	if value == "" {
		return 0, false
	}
	length, err := strconv.ParseInt(value, 10, 64)
	return length, err == nil && length >= 0
}

// closeIfCut tells the client that the connection ends, if a deadline has cut
// the request's body off.
func (w *heldWriter) closeIfCut() {
	if w.r.ProtoMajor == 1 && w.body.wasCut() {
		w.w.Header().Set("Connection", "close")
		w.closes = true
	}
}

// Header returns the header of the response.
func (w *heldWriter) Header() http.Header { return w.w.Header() }

// WriteHeader begins the response, unless status is informational.
func (w *heldWriter) WriteHeader(status int) {
	if status == http.StatusServiceUnavailable {
		w.reportTimeoutHandler()
	}
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
	return w.keep(n, p[now:])
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
	return w.keep(n, []byte(s[now:]))
}

// admit reports how many of the next n bytes go to the server now. The caller
// keeps the others. It fails if they are too many for the Content-Length.
func (w *heldWriter) admit(n int) (now int, err error) {
	if w.state == unbegun {
		w.begin(http.StatusOK)
	}
	w.yield()
	switch {
	case w.state == buffered:
		return int(min(int64(n), w.left)), nil
	case w.state != counted || n == 0:
		return n, nil
	case int64(n) > w.left: // as the server does over HTTP/1; over HTTP/2 it might send the rest of the body
		return 0, http.ErrContentLength
	}
	return int(min(int64(n), w.left-1)), nil
}

// keep keeps rest back, of which the server has got the first n bytes. It
// returns the result of the Write.
func (w *heldWriter) keep(n int, rest []byte) (int, error) {
	all := n + len(rest)
	switch {
	case w.state == counted:
		w.kept = append(w.keptByte[:0], rest...)
		w.left = 0
		return all, nil
	case isServers(w.w): // which drops the body of a response to HEAD: one byte has it send the header
		w.kept = append(w.keptByte[:0], rest[0])
		return all, nil
	case len(w.kept)+len(rest) <= mostKept:
		w.kept = append(w.kept, rest...)
		return all, nil
	}
	_ = w.release() // an error shows again in the next call
	sent, err := w.w.Write(rest)
	return n + sent, err
}

// isServers reports whether w is net/http's own for HTTP/2, or that of
// golang.org/x/net.
func isServers(w http.ResponseWriter) bool {
	switch reflect.TypeOf(w).String() {
	case "*http.http2responseWriter", "*http2.responseWriter":
		return true
	}
	return false
}

// FlushError is for [http.ResponseController], whatever w.w can do.
func (w *heldWriter) FlushError() error {
	before := w.state
	if before == unbegun {
		w.begin(http.StatusOK)
	}
	w.yield()
	switch {
	case w.state == bodiless:
		if before == unbegun {
			w.w.WriteHeader(http.StatusOK)
		}
		return nil
	case w.state == buffered:
		_ = w.release() // an error shows again below
	case len(w.kept) > 0 && w.isSniffed():
		return nil
	}
	err := http.NewResponseController(w.w).Flush()
	if before == unbegun && errors.Is(err, http.ErrNotSupported) {
		w.state = unbegun
	}
	return err
}

// isSniffed reports whether the server needs the byte that is kept back to
// detect the type of the body, of which it reads that many bytes.
func (w *heldWriter) isSniffed() bool {
	const sniffLen = 512
	_, given := w.w.Header()["Content-Type"]
	return !given && w.length <= sniffLen
}

// EnableFullDuplex is for [http.ResponseController].
func (w *heldWriter) EnableFullDuplex() error {
	err := http.NewResponseController(w.w).EnableFullDuplex()
	w.duplex = w.duplex || err == nil
	return err
}

// Unwrap is for [http.ResponseController]. Calls on the ResponseWriter below
// bypass the heldWriter.
func (w *heldWriter) Unwrap() http.ResponseWriter { return w.w }

// yield stops keeping anything back once the handler has released all of its
// locks.
func (w *heldWriter) yield() {
	if w.state != open && w.state != hijacked && w.locks.Released() {
		_ = w.release() // an error of the connection shows again in the next call
	}
}

// release sends what was kept back. The lock has been released, or the handler
// flushes a response to HEAD.
func (w *heldWriter) release() error {
	if w.state == hijacked {
		return nil
	}
	kept := w.kept
	w.state, w.kept = open, nil
	if len(kept) == 0 {
		return nil
	}
	_, err := w.w.Write(kept)
	return err
}

// end completes the response of a handler that has returned. The lock has been
// released.
//
// If a deadline has cut the body off, the connection must not be used again. It
// may be too late for the header of a handler that writes while it reads to say
// so. Then end breaks the connection.
func (w *heldWriter) end() {
	_ = w.release() // a client that has left does not need it
	if w.state != hijacked && w.duplex && !w.closes && w.r.ProtoMajor == 1 && w.body.wasCut() {
		_ = http.NewResponseController(w.w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// ofTheResponse are header fields that a handler may have set for a response
// that it did not write.
var ofTheResponse = []string{
	"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Range", "Content-Type",
	"Etag", "Last-Modified", "Trailer",
}

// reject writes the response of a handler that has written none.
// Content-Encoding stays if a handler around has set it before, such as one
// that compresses.
func (w *heldWriter) reject(err error) {
	w.closeIfCut()
	h := w.w.Header()
	for _, name := range ofTheResponse {
		if name != "Content-Encoding" || !w.encoded {
			h.Del(name)
		}
	}
	w.m.Reject(w.w, w.r, err)
}
