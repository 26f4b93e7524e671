package httpmw

import (
	"bufio"
	"errors"
	"net"
	"net/http"
)

// Unwrap is for [http.ResponseController]. Calls on the ResponseWriter below
// bypass the heldWriter, except for a Hijack by the controller.
func (w *heldWriter) Unwrap() http.ResponseWriter {
	if hijacksBelow(w.w) {
		return unwrappedWriter{w.w, w}
	}
	return w.w
}

// hijacksBelow reports whether w is not a [http.Hijacker], but has one below
// it.
func hijacksBelow(w http.ResponseWriter) bool {
	if _, ok := w.(http.Hijacker); ok {
		return false // hijackingWriter has it
	}
	for {
		t, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = t.Unwrap()
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
	}
}

// An unwrappedWriter notices a Hijack that [http.ResponseController] finds by
// Unwrap. The handler's ResponseWriter has no Hijack of its own then.
type unwrappedWriter struct {
	http.ResponseWriter
	held *heldWriter
}

func (w unwrappedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w unwrappedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.held.hijack() }

// FlushError is for [http.ResponseController], whatever w.w can do.
func (w *heldWriter) FlushError() error {
	before := w.state
	if before == unbegun {
		w.begin(http.StatusOK)
	}
	w.yield()
	if w.state == bodiless || w.state == head {
		if before == unbegun {
			w.w.WriteHeader(http.StatusOK)
		}
		return nil
	}
	if w.keeps && w.isSniffed() {
		return nil
	}
	err := http.NewResponseController(w.w).Flush()
	if before == unbegun && errors.Is(err, http.ErrNotSupported) {
		w.state = unbegun
	}
	return err
}

// sniffLen is how many bytes of a body net/http reads to detect its type.
const sniffLen = 512

// isSniffed reports whether the server needs the byte that is kept back to
// detect the type of the body.
func (w *heldWriter) isSniffed() bool {
	_, given := w.header["Content-Type"]
	return !given && w.length <= sniffLen
}

// EnableFullDuplex is for [http.ResponseController].
func (w *heldWriter) EnableFullDuplex() error {
	err := http.NewResponseController(w.w).EnableFullDuplex()
	w.duplex = w.duplex || err == nil
	return err
}

// A flushingWriter is a heldWriter on a [http.Flusher].
type flushingWriter struct{ *heldWriter }

func (w flushingWriter) Flush() { _ = w.FlushError() }

// A hijackingWriter is a heldWriter on a [http.Hijacker].
type hijackingWriter struct{ *heldWriter }

func (w hijackingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (w *heldWriter) hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.beforeHeader()
	if err := w.sendKept(); err != nil {
		return nil, nil, err
	}
	conn, rw, err := http.NewResponseController(w.w).Hijack()
	if err == nil {
		w.state = hijacked
	}
	return conn, rw, err
}
