package httpmw

import (
	"bufio"
	"errors"
	"net"
	"net/http"
)

// Unwrap is for [http.ResponseController].
func (w *heldWriter) Unwrap() http.ResponseWriter { return w.w }

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

// sniffLen is how much of a body net/http looks at to find its type.
const sniffLen = 512

// isSniffed reports whether the server needs the byte kept back to find out the
// body's type.
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

func (w hijackingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.beforeHeader()
	if err := w.sendKept(); err != nil {
		return nil, nil, err
	}
	conn, rw, err := w.w.(http.Hijacker).Hijack()
	if err == nil {
		w.state = hijacked
	}
	return conn, rw, err
}
