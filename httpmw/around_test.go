package httpmw_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Middleware inside of another waits. Its handler returns without a response
// or a look at the body: that is no interruption of the one around.
func TestWaitInsideOfAnotherMiddleware(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{"Content-Length: 1000000", "Transfer-Encoding: chunked"} {
		t.Run(fields, func(t *testing.T) {
			t.Parallel()
			tenant := ratelimit.AtMost(2, sqllock.NewMemory(), "tenant")
			around := httpmw.New(tenant, httpmw.Header(user)).Handler
			l := newLineInside(t, around, func(http.ResponseWriter, *http.Request) {})
			conn := l.wait(t, post(fields))
			close(l.leave)
			response(t, conn).want(t, http.StatusOK)
		})
	}
}

// unwrapper is what loggers are like: it can be unwrapped, and nothing else.
type unwrapper struct{ http.ResponseWriter }

func (w unwrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A hijacked connection gets no other response, also behind a ResponseWriter
// that can only be unwrapped.
func TestInterruptedAfterHijackBehindUnwrap(t *testing.T) {
	t.Parallel()
	rejected := make(chan error, 1)
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(20*time.Millisecond)),
		httpmw.Header(user), httpmw.WithRejectHandler(func(_ http.ResponseWriter, _ *http.Request, err error) { rejected <- err }))
	ended := make(chan struct{})
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		<-r.Context().Done()
	}))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(unwrapper{w}, r)
	}))
	dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\n"+user+": ada\r\n\r\n")
	receive(t, ended, "end")
	select {
	case err := <-rejected:
		t.Errorf("a hijacked connection was rejected: %v", err)
	default:
	}
}

// Middleware that compresses may have set its Content-Encoding before.
func TestInterruptedInsideOfCompression(t *testing.T) {
	t.Parallel()
	h := held().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-A", "1")
		<-r.Context().Done()
	}))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		gz := gzip.NewWriter(w)
		defer gz.Close()
		h.ServeHTTP(compressed{w, gz}, r)
	}))
	r := get(t, s)
	r.want(t, http.StatusServiceUnavailable)
	if !strings.Contains(r.text, "interrupted") {
		t.Errorf("header %v, body %q", r.Header, r.text)
	}
}

type compressed struct {
	http.ResponseWriter
	gz *gzip.Writer
}

func (w compressed) Write(p []byte) (int, error) { return w.gz.Write(p) }

// The header of the handler's response does not spoil that of WithRejectHandler.
func TestInterruptedWithRejectHandler(t *testing.T) {
	t.Parallel()
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(20*time.Millisecond)),
		httpmw.Header(user), httpmw.WithRejectHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "try again")
		}))
	s := serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		w.Header().Set("Content-Type", "image/png")
		<-r.Context().Done()
	})))
	r, err := fetch(t.Context(), s, "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.text != "try again" || r.Header.Get("Content-Type") == "image/png" {
		t.Errorf("%v %q", r.Header, r.text)
	}
}

// A handler may replace its request while a Read begins and ends.
func TestHandlerReplacesItsRequest(t *testing.T) {
	t.Parallel()
	s := serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 1)
		body := r.Body
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = body.Read(b)
		}()
		*r = *r.WithContext(t.Context())
		<-read
		_, _ = io.WriteString(w, "done")
	})))
	conn := dial(t, s, post("Content-Length: 1")+"x")
	response(t, conn).want(t, http.StatusOK)
}

// The last byte is kept back behind a Content-Length of middleware around, too.
func TestContentLengthFromAround(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	seen := ""
	w.Header().Set("Content-Length", "4")
	released := ratelimit.Observer{Released: func(time.Duration) { seen = w.Body.String() }}
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithObserver(released))
	httpmw.New(l, httpmw.Header(user)).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "done")
	})).ServeHTTP(w, request("/", user+": ada"))
	if seen == "done" {
		t.Error("the client had all before the lock was back")
	}
}

// countedBody is an endless body.
type countedBody struct{ n, all *atomic.Int64 }

func (b countedBody) Read(p []byte) (int, error) {
	b.n.Add(int64(len(p)))
	b.all.Add(int64(len(p)))
	return len(p), nil
}
func (countedBody) Close() error { return nil }

// All bodies that one Middleware reads ahead have 64 MiB, again and again.
func TestReadAheadIsBounded(t *testing.T) {
	const requests = 80
	locks := &watchedLocks{sqllock.NewMemory(), make(chan struct{}, requests)}
	m := httpmw.New(ratelimit.OneAtATime(locks, "export", ratelimit.WithWait(patience, requests)), httpmw.Header(user))
	round := func() int64 {
		lock, err := m.Acquire(request("/", user+": ada"))
		if err != nil {
			t.Fatal(err)
		}
		var all atomic.Int64
		ends := make(chan struct{}, requests)
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range requests {
			r := request("/", user+": ada")
			r.Method = "POST"
			r.Body = countedBody{new(atomic.Int64), &all}
			go func() {
				defer func() { ends <- struct{}{} }()
				h.ServeHTTP(struct {
					http.ResponseWriter
					canDelay
				}{httptest.NewRecorder(), canDelay{}}, r)
			}()
			receive(t, locks.waits, "wait")
		}
		last := int64(-1)
		for all.Load() != last {
			last = all.Load()
			time.Sleep(50 * time.Millisecond)
		}
		_ = lock.Unlock()
		for range requests {
			receive(t, ends, "end")
		}
		return last
	}
	for range 2 {
		if n := round(); n > 64<<20 || n < 32<<20 {
			t.Errorf("%d bytes", n)
		}
	}
}

// The next request on a connection is whole after a body was read ahead.
func TestPipelinedAfterWaiting(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %v", body, err)
	})
	one := post("Content-Length: 4")
	conn := l.wait(t, one+"body"+one+"next"+one+"last")
	close(l.leave)
	all := make([]byte, 0, 4096)
	buf := make([]byte, 4096)
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	for !strings.Contains(string(all), "last <nil>") {
		n, err := conn.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			t.Fatal(err, string(all))
		}
	}
	if s := string(all); !strings.Contains(s, "body <nil>") || !strings.Contains(s, "next <nil>") {
		t.Error(s)
	}
}
