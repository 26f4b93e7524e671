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

	"github.com/latchkey-go/latchkey/internal/handoff"
)

// A heldBody is the request body of an admitted request. Its Read fails once the
// handler's context has ended with the loss of the lock, or with WithMaxHold.
// Otherwise a handler whose body never arrives would not see that end. The end of
// the request's own context is left to the server, as without a lock.
//
// Handlers pass a body on to other goroutines, which may read it after the
// handler has returned.
type heldBody struct {
	io.ReadCloser           // what the handler reads
	ahead         readAhead // what was read while the request waited
	w             http.ResponseWriter
	outer, inner  *http.Request   // as it came, and as the handler has it
	ctx           context.Context // the handler's: handlers replace that of inner
	reads         *bodyReads

	mu      sync.Mutex // protects the following
	reading int        // calls of Read under way
	ended   error      // what Read fails with; nil until then
	cut     bool       // a deadline of ours has ended a Read
	eof     bool       // Read has come to the end
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
	defer func() { err = b.leave(n, err) }() // a body of the user's own may panic
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
	case err == io.EOF && b.outer.Trailer != nil && b.inner.Trailer == nil: // the server fills in that of the request that came
		b.inner.Trailer = b.outer.Trailer
	case err != nil && err != io.EOF && b.ended != nil:
		return b.ended
	}
	return err
}

// Taken reports whether a byte was read: see [handoff.Body].
func (b *heldBody) Taken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// endLocked looks whether the handler's context has ended by itself.
func (b *heldBody) endLocked() {
	ctx := b.ctx
	if b.done || b.ended != nil || ctx.Err() == nil || b.outer.Context().Err() != nil {
		return
	}
	b.ended = fmt.Errorf("httpmw: the request body is no longer read: %w", cmp.Or(context.Cause(ctx), ctx.Err()))
}

// interrupt ends a Read under way if the handler's context has ended. It holds the
// mutex so that its deadline never comes after the handler's return, where the
// connection may serve another request. To set a deadline does not block.
func (b *heldBody) interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endLocked(); b.ended != nil && !b.cut && !b.done && b.reading > 0 {
		b.cut = http.NewResponseController(b.w).SetReadDeadline(longAgo) == nil
	}
}

// finish is called when the handler has returned, also twice.
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

// settle waits for a Read that began in the wait, if it may touch the response's
// header: [http.MaxBytesReader] does, when there is too much. Only the server's
// own body is known not to.
func (b *heldBody) settle() {
	if b == nil || !b.ahead.begun() || reflect.TypeOf(handoff.Beneath(b.ahead.body)).String() == "*http.body" {
		return
	}
	if b.enter() != nil {
		b.ahead.cut()
		return
	}
	<-b.ahead.ended
	_ = b.leave(0, nil)
}

// Beneath returns the body of the request as it came: see [handoff.Body].
func (b *heldBody) Beneath() io.ReadCloser { return b.ahead.body }

// beforeHeader ends what would keep the server from writing a header; it reports
// whether that has broken the connection for the next request.
func (b *heldBody) beforeHeader(duplex bool) (broken bool) {
	switch {
	case duplex:
		b.settle()
	case b.ahead.begun():
		b.ahead.cut()
	}
	return b.broken()
}

// broken reports whether a deadline of ours is in force on the connection, which
// is then as good as closed. Over HTTP/2 it would be the stream's alone.
func (b *heldBody) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.outer.ProtoMajor == 1 && (b.cut || b.ahead.wasCut.Load())
}

// spoiled reports whether the server may take the connection for a good one
// although it is broken. It does not with a body that it cannot read to its end,
// unless the handler has written while it read.
func (b *heldBody) spoiled(duplex bool) bool {
	if !b.broken() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return duplex || b.eof
}
