package httpmw

import (
	"context"
	"io"
	"net/http"
	"time"
)

// mostBefore is the length of the longest body that is read before its request
// waits.
const mostBefore = 64 << 10

// readsBeforeWait reports whether the body of a request is read before the
// request waits. Over HTTP/1 the server notices that a client has left only
// once the body was read. Over HTTP/2 it notices that at once. With "Expect:
// 100-continue" the first Read would ask the client for its body. Without a
// read deadline a Read could not be ended.
func readsBeforeWait(w http.ResponseWriter, r *http.Request) bool {
	return r.ProtoMajor == 1 && hasBody(r) && r.ContentLength > 0 && r.ContentLength <= mostBefore &&
		r.Header["Expect"] == nil && hasReadDeadline(w)
}

// hasReadDeadline reports whether [http.ResponseController] can set one on w.
func hasReadDeadline(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ SetReadDeadline(time.Time) error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// readAhead is called before the request waits, by its goroutine. It reads the
// body until ctx ends with the wait. Then a deadline ends the Read, and the
// connection serves no other request. The handler gets what was read.
func (b *heldBody) readAhead(ctx context.Context) {
	b.before = true
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.cutOffLocked()
	})
	defer func() { // a body of another package may panic
		if !stop() {
			<-cut
		}
	}()
	b.unread, b.ahead = io.ReadAll(io.LimitReader(b.ReadCloser, b.outer.ContentLength))
}
