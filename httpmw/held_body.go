package httpmw

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// A heldBody is the request body of an admitted request. Its Read fails once
// the handler's context has ended with the loss of the lock, or with
// WithMaxHold. Otherwise a handler whose body never arrives would not notice
// that end. The end of the request's own context is left to the server, as
// without a lock. Close is that of the original body: it may wait for the
// client, and the Trailer that it finds stays in the original request.
//
// Handlers may pass a body on to other goroutines, which may read it after the
// handler has returned.
//
// Invariant: after finish no deadline of a heldBody is set on the connection,
// which may serve another request by then.
type heldBody struct {
	io.ReadCloser // the original body
	w             http.ResponseWriter
	outer, inner  *http.Request   // the original request, and the handler's copy; nil before there is one
	ctx           context.Context // of the handler, which may replace that of inner
	stop          func() bool     // ends the watch over ctx

	before bool // the body was read before the request waited

	mu       sync.Mutex // protects the fields below
	unread   []byte     // what was read before the wait, and not by the handler yet
	ahead    error      // how that reading ended
	reading  int        // calls of Read under way
	ended    error      // the error of every later Read; nil before
	cut      bool       // a deadline of the heldBody is in force
	finished bool       // the handler has returned
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

func newHeldBody(w http.ResponseWriter, r *http.Request) *heldBody {
	return &heldBody{ReadCloser: r.Body, w: w, outer: r}
}

// handOver gives inner, the handler's copy of the request, its body. A nil
// heldBody does nothing.
func (b *heldBody) handOver(inner *http.Request) {
	if b == nil {
		return
	}
	b.inner, b.ctx, inner.Body = inner, inner.Context(), b
	b.stop = context.AfterFunc(b.ctx, b.interrupt)
}

func (b *heldBody) Read(p []byte) (n int, err error) {
	if n, err, done := b.enter(p); done {
		return n, err
	}
	defer func() { err = b.leave(err) }() // a body of another package may panic
	return b.ReadCloser.Read(p)
}

// enter begins a Read. It is done if the context has ended, or if p gets what
// was read before the wait.
func (b *heldBody) enter(p []byte) (n int, err error, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endLocked(); b.ended != nil {
		return 0, b.ended, true
	}
	if len(b.unread) > 0 {
		n = copy(p, b.unread)
		b.unread = b.unread[n:]
		return n, nil, true
	}
	if b.ahead != nil {
		return 0, b.ahead, true
	}
	b.reading++
	return 0, nil, false
}

func (b *heldBody) leave(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading--
	switch {
	case err == io.EOF && b.outer.Trailer != nil && b.inner.Trailer == nil: // the server sets the Trailer of the original request
		b.inner.Trailer = b.outer.Trailer
	case err != nil && err != io.EOF && b.ended != nil:
		return b.ended
	}
	return err
}

// Close drops what was read before the wait: a Read after it fails as that of
// the original body.
func (b *heldBody) Close() error {
	b.takeUnread()
	return b.ReadCloser.Close()
}

// takeUnread returns what was read before the wait and not by the handler. Read
// no longer returns it. It is nil for a nil heldBody.
func (b *heldBody) takeUnread() []byte {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	unread := b.unread
	b.unread, b.ahead = nil, nil
	return unread
}

// endLocked sets ended if the handler's context has ended, but not that of the
// request.
func (b *heldBody) endLocked() {
	ctx := b.ctx
	if b.finished || b.ended != nil || ctx.Err() == nil || b.outer.Context().Err() != nil {
		return
	}
	b.ended = fmt.Errorf("httpmw: the request body is no longer read: %w", cmp.Or(context.Cause(ctx), ctx.Err()))
}

// interrupt ends a Read under way when the handler's context ends. It holds the
// mutex, so that it never sets a deadline after finish. Setting a deadline does
// not block.
func (b *heldBody) interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endLocked(); b.ended != nil && !b.finished && b.reading > 0 {
		b.cutOffLocked()
	}
}

// cutOffLocked sets a read deadline that has passed.
func (b *heldBody) cutOffLocked() {
	b.cut = http.NewResponseController(b.w).SetReadDeadline(time.Unix(1, 0)) == nil
}

// finish is called when the handler has returned or panicked. It ends a Read
// that the handler has left behind, as interrupt does: the server writes no
// header while a Read is under way.
func (b *heldBody) finish() {
	if b == nil {
		return
	}
	b.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endLocked(); b.ended != nil && !b.finished && b.reading > 0 {
		b.cutOffLocked()
	}
	b.finished = true
}

// wasCut reports whether a deadline of b is in force. The connection then
// serves no other request over HTTP/1. Over HTTP/2 the deadline is that of the
// stream.
func (b *heldBody) wasCut() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cut
}
