package httpmw

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

const (
	// maxAhead is how much of a body is read while its request waits.
	maxAhead = 1 << 20

	// maxAheadOfAll bounds the memory of all bodies that one Middleware reads ahead.
	maxAheadOfAll = 64 << 20

	firstAhead = 4 << 10
)

// A readAhead reads the body of a request while it waits for its turn. Over
// HTTP/1 the server sees that a client has left only when it reads: then it ends
// the request's context, and with that the wait. The handler gets what was read.
//
// Its goroutine ends with the first Read that returns after the wait. The
// handler's own Read takes over the result, so that there are never two at once.
type readAhead struct {
	context.Context // the request's

	body io.ReadCloser
	w    http.ResponseWriter
	r    *http.Request // since the wait a copy: a Read may fill in the Trailer of the one that came
	all  *atomic.Int64 // bytes of memory of the Middleware's bodies

	mu       sync.Mutex // protects the following
	buf      []byte     // what was read
	passed   int        // bytes of buf that the handler has
	err      error      // of the last Read
	panicked any        // by the last Read
	stopped  bool       // the goroutine must not Read again

	ended  chan struct{} // closed at the goroutine's end; nil: none was started
	wasCut atomic.Bool   // the deadline of cut is in force
}

// mayReadAhead reports whether the body of a request that waits is read ahead:
//
//   - HTTP/2 reports a client that leaves at once, as does HTTP/1 without a body;
//   - with Expect: 100-continue the first Read would ask the client for its body;
//   - without a read deadline a Read could not be ended.
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

// Value makes a the limiter's [waiting.Watcher].
func (a *readAhead) Value(key any) any {
	if key == (waiting.Key{}) {
		return a
	}
	return a.Context.Value(key)
}

// WaitBegins starts to read.
func (a *readAhead) WaitBegins() {
	if a.ended == nil {
		a.ended, a.r = make(chan struct{}), a.r.WithContext(a.Context)
		go a.run()
	}
}

// begun reports whether the request has waited. The wait is over.
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

// readInto turns a panic into the handler's: the server recovers from that one.
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

// room is where the next bytes go; nil if none are to be read.
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

// add adds the next n bytes; it reports whether more are to be read.
func (a *readAhead) add(n int, err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.buf, a.err = a.buf[:len(a.buf)+n], err
	return err == nil
}

// handOver begins the handler's part: what is read from now on is for its Read.
func (a *readAhead) handOver() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
}

// forHandler is the request's context without the end that cut brings about: the
// server takes our deadline for the client's leaving.
func (a *readAhead) forHandler() (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(a.Context)
	stopTimer := func() {}
	if deadline, ok := a.Context.Deadline(); ok {
		ctx, stopTimer = context.WithDeadline(ctx, deadline)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(a.Context, func() {
		if !a.wasCut.Load() {
			cancel(context.Cause(a.Context))
		}
	})
	return ctx, func() {
		stop()
		cancel(nil)
		stopTimer()
	}
}

// Read is for the handler, after handOver.
func (a *readAhead) Read(p []byte) (int, error) {
	if n := a.pass(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	<-a.ended
	if n := a.pass(p); n > 0 {
		return n, nil
	}
	if a.panicked != nil {
		panic(a.panicked)
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.body.Read(p)
}

// pass gives the handler what there is.
func (a *readAhead) pass(p []byte) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := copy(p, a.buf[a.passed:])
	a.passed += n
	return n
}

// Close would wait for a Read under way.
func (a *readAhead) Close() error {
	a.cut()
	return a.body.Close()
}

// cut ends a Read that is under way. The server waits for that Read before it
// writes a header, and the client may never send what it waits for.
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

// noticeCut tells each Middleware around, whose ResponseWriters are below w.
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

// free is called once, when nothing is read ahead any more.
func (a *readAhead) free() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all.Add(-int64(cap(a.buf)))
}
