package httpmw

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxAhead is how many bytes of a body are read while its request waits.
	maxAhead = 1 << 20

	// maxAheadOfAll bounds the memory of all bodies that one Middleware reads
	// ahead.
	maxAheadOfAll = 64 << 20

	// firstAhead is the size of the first buffer.
	firstAhead = 4 << 10
)

// A readAhead reads the body of a request while the request waits. Over HTTP/1
// the server notices only when it reads that a client has left. It then ends
// the request's context, and so the wait. The handler gets what was read.
//
// Its goroutine ends with the first Read that returns after the wait. The
// handler's own Read takes over the result.
//
// Invariant: there are never two Reads of the body at once.
type readAhead struct {
	context.Context // the request's

	body io.ReadCloser
	w    http.ResponseWriter
	r    *http.Request // once the wait has begun, a copy: a Read may set the Trailer of the original
	all  *atomic.Int64 // bytes of memory of all bodies of the Middleware

	mu       sync.Mutex // protects the fields below
	buf      []byte     // what was read
	passed   int        // bytes of buf that the handler has
	err      error      // of the last Read
	panicked any        // value of a panic of the last Read
	stopped  bool       // the goroutine must not Read again

	ended  chan struct{} // closed when the goroutine ends; nil if none was started
	wasCut atomic.Bool   // the deadline of cut is in force
}

// mayReadAhead reports whether the body of a request that waits is read ahead:
//
//   - Over HTTP/2, and over HTTP/1 without a body, the server notices at once
//     that a client has left. Nothing needs to be read.
//   - With Expect: 100-continue the first Read would ask the client for its
//     body.
//   - Without a read deadline a Read could not be ended.
func mayReadAhead(w http.ResponseWriter, r *http.Request) bool {
	return r.ProtoMajor == 1 && hasBody(r) && r.Header["Expect"] == nil && hasReadDeadline(w)
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

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

// WaitBegins starts the goroutine that reads.
func (a *readAhead) WaitBegins() {
	if a.ended == nil {
		a.ended, a.r = make(chan struct{}), a.r.WithContext(a.Context)
		go a.run()
	}
}

// begun reports whether the request has waited. It is called after the wait.
func (a *readAhead) begun() bool { return a.ended != nil }

func (a *readAhead) run() {
	defer close(a.ended)
	for {
		room := a.room()
		if room == nil {
			return
		}
		if n, err := a.readInto(room); !a.add(n, err) {
			return
		}
	}
}

// readInto reads into room. It keeps a panic for the handler's Read, where the
// server recovers from it.
func (a *readAhead) readInto(room []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.panicked, n, err = v, 0, io.ErrUnexpectedEOF
		}
	}()
	return a.body.Read(room)
}

// room returns the buffer for the next bytes, or nil if no more should be read.
func (a *readAhead) room() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return nil
	}
	if len(a.buf) == cap(a.buf) {
		grown := max(firstAhead, 2*cap(a.buf))
		more := int64(grown - cap(a.buf))
		if grown > maxAhead || a.all.Add(more) > maxAheadOfAll {
			if grown <= maxAhead {
				a.all.Add(-more)
			}
			return nil
		}
		a.buf = append(make([]byte, 0, grown), a.buf...)
	}
	return a.buf[len(a.buf):cap(a.buf)]
}

// add adds the next n bytes. It reports whether more may be read.
func (a *readAhead) add(n int, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.buf, a.err = a.buf[:len(a.buf)+n], err
	return err == nil
}

// cut ends a Read that is under way. The server waits for that Read before it
// writes a header, and the client may never send the rest.
func (a *readAhead) cut() {
	a.handOver()
	select {
	case <-a.ended:
		return
	default:
	}
	a.wasCut.Store(true) // before the server ends the request's context
	noticeCut(a.w)
	if http.NewResponseController(a.w).SetReadDeadline(longAgo) == nil {
		<-a.ended
	}
}

// noticeCut notifies each Middleware around, whose heldWriters are below w.
func noticeCut(w http.ResponseWriter) {
	for {
		if t, ok := w.(interface{ noticeCut() }); ok {
			t.noticeCut()
		}
		t, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return
		}
		w = t.Unwrap()
	}
}

// free is called once, when reading ahead has ended.
func (a *readAhead) free() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all.Add(-int64(cap(a.buf)))
}
