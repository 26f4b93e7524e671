package httpmw

import (
	"context"
	"errors"
	"net/http"
)

// handlerEnded is called when the handler has returned or panicked. It may be
// called twice.
func (w *heldWriter) handlerEnded() {
	if w.body == nil {
		return
	}
	w.body.finish()
	if w.state == unbegun {
		w.beforeHeader()
	}
}

// end completes the response of a handler that has returned. The lock has been
// released. end breaks the connection if a deadline has spoiled it, and the
// server would still use it again. That happens if it was too late for the
// header to say Connection: close.
func (w *heldWriter) end() {
	begun := w.state != unbegun && w.state != hijacked
	_ = w.release() // a client that has left does not need it
	if begun && w.body != nil && !w.closes && w.body.spoiled(w.duplex) {
		_ = http.NewResponseController(w.w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// noticeCut is called before an inner Middleware cuts a Read of the body.
func (w *heldWriter) noticeCut() { w.cutInside.Store(true) }

// cutWithin reports whether ctx ended only with the request's own context, and
// an inner Middleware has cut a Read. The server takes that deadline for a
// client that leaves. The handler was not interrupted then.
func (w *heldWriter) cutWithin(ctx context.Context) bool {
	return w.cutInside.Load() && errors.Is(context.Cause(w.r.Context()), context.Cause(ctx)) &&
		!w.locks.Lost()
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
func (w *heldWriter) reject(m *Middleware, err error) {
	h := w.Header()
	for _, name := range ofTheResponse {
		if name != "Content-Encoding" || !w.encoded {
			h.Del(name)
		}
	}
	m.Reject(w.w, w.r, err)
}

// yield stops keeping anything back once the handler has released all of its
// locks.
func (w *heldWriter) yield() {
	if w.state != open && w.state != hijacked && w.locks.Released() {
		_ = w.release() // an error of the connection shows again in the next call
	}
}

// release sends what was kept back. The lock has been released.
func (w *heldWriter) release() error {
	if w.state == hijacked {
		return nil
	}
	w.state = open
	return w.sendKept()
}

// sendKept sends the byte that was kept back, if there is one.
func (w *heldWriter) sendKept() error {
	if !w.keeps {
		return nil
	}
	w.keeps = false
	_, err := w.w.Write(w.kept[:])
	return err
}
