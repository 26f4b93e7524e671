package httpmw

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/admission"
)

// A heldBody is the request body of an admitted request. Its Read fails once
// the handler's context has ended with the loss of the lock, or with
// WithMaxHold. Otherwise a handler whose body never arrives would not notice
// that end. The end of the request's own context is left to the server, as
// without a lock.
//
// Handlers may pass a body on to other goroutines, which may read it after the
// handler has returned.
//
// Invariant: after finish no deadline of a heldBody is set on the connection,
// which may serve another request by then.
type heldBody struct {
	io.ReadCloser           // what the handler reads
	ahead         readAhead // what was read while the request waited
	w             http.ResponseWriter
	outer, inner  *http.Request   // the original request, and the handler's copy
	ctx           context.Context // of the handler, which may replace that of inner
	reads         *bodyReads

	mu      sync.Mutex // protects the fields below
	reading int        // calls of Read under way
	ended   error      // the error of every later Read; nil before
	cut     bool       // a deadline of the heldBody has ended a Read
	eof     bool       // Read has returned io.EOF
	taken   bool       // Read has returned a byte
	done    bool       // the handler has returned
}

// handOver gives inner, the handler's copy of the request, its body. A nil
// heldBody does nothing.
func (b *heldBody) handOver(inner *http.Request) {
	if b == nil {
		return
	}
	if b.ahead.begun() {
		b.ahead.handOver()
		b.ReadCloser = &b.ahead
	}
	b.inner, b.ctx, inner.Body = inner, inner.Context(), b
}

// longAgo is a deadline that ends a Read at once.
var longAgo = time.Unix(1, 0)

func (b *heldBody) Read(p []byte) (n int, err error) {
	if err := b.enter(); err != nil {
		return 0, err
	}
	defer func() { err = b.leave(n, err) }() // a body of another package may panic
	return b.ReadCloser.Read(p)
}

func (b *heldBody) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endLocked(); b.ended != nil {
		return b.ended
	}
	if b.reading++; b.reading == 1 && !b.done {
		b.reads.add(b)
	}
	return nil
}

func (b *heldBody) leave(n int, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading--; b.reading == 0 {
		b.reads.remove(b)
	}
	b.eof = b.eof || err == io.EOF
	b.taken = b.taken || n > 0
	switch {
	case err == io.EOF && b.outer.Trailer != nil && b.inner.Trailer == nil: // the server sets the Trailer of the original request
		b.inner.Trailer = b.outer.Trailer
	case err != nil && err != io.EOF && b.ended != nil:
		return b.ended
	}
	return err
}

// Taken reports whether a byte was read: see [admission.Body].
func (b *heldBody) Taken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// endLocked sets ended if the handler's context has ended, but not that of the
// request.
func (b *heldBody) endLocked() {
	ctx := b.ctx
	if b.done || b.ended != nil || ctx.Err() == nil || b.outer.Context().Err() != nil {
		return
	}
	b.ended = fmt.Errorf("httpmw: the request body is no longer read: %w", cmp.Or(context.Cause(ctx), ctx.Err()))
}

// interrupt ends a Read under way if the handler's context has ended. It holds
// the mutex, so that it never sets a deadline after finish. Setting a deadline
// does not block.
func (b *heldBody) interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endLocked(); b.ended != nil && !b.cut && !b.done && b.reading > 0 {
		b.cut = http.NewResponseController(b.w).SetReadDeadline(longAgo) == nil
	}
}

// finish is called when the handler has returned. It may be called twice.
func (b *heldBody) finish() {
	b.mu.Lock()
	again := b.done
	b.done = true
	b.mu.Unlock()
	if !again && b.ahead.begun() {
		b.ahead.cut()
		b.ahead.free()
	}
}

// settle waits for a Read that began in the wait, if that may touch the
// response's header. [http.MaxBytesReader] does so if the body is too large.
// Only the server's own body certainly does not.
func (b *heldBody) settle() {
	if b == nil || !b.ahead.begun() || reflect.TypeOf(admission.Beneath(b.ahead.body)).String() == "*http.body" {
		return
	}
	if b.enter() != nil {
		b.ahead.cut()
		return
	}
	<-b.ahead.ended
	_ = b.leave(0, nil)
}

// Beneath returns the body that the Middleware has wrapped: see [admission.Body].
func (b *heldBody) Beneath() io.ReadCloser { return b.ahead.body }

// beforeHeader ends a Read that would block the server from writing a header.
// It reports whether that has broken the connection for the next request.
func (b *heldBody) beforeHeader(duplex bool) (broken bool) {
	switch {
	case duplex:
		b.settle()
	case b.ahead.begun():
		b.ahead.cut()
	}
	return b.broken()
}

// broken reports whether a deadline of the heldBody is in force on the
// connection, which then serves no other request. Over HTTP/2 the deadline is
// that of the stream.
func (b *heldBody) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.outer.ProtoMajor == 1 && (b.cut || b.ahead.wasCut.Load())
}

// spoiled reports whether the server may use the connection again although it
// is broken. It does not if it cannot read the body to its end, unless the
// handler has written while it read.
func (b *heldBody) spoiled(duplex bool) bool {
	if !b.broken() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return duplex || b.eof
}
