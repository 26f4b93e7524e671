package httpmw_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// dial connects to s and sends request. A response that never comes fails the
// test, since the connection has a deadline.
func dial(t *testing.T, s *httptest.Server, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(4 * httptesting.Patience)); err != nil {
		t.Fatal(err)
	}
	transmit(t, conn, request)
	return conn
}

func transmit(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// post returns the header of a POST of ada that ends with fields.
func post(fields string) string {
	return "POST / HTTP/1.1\r\nHost: x\r\n" + user + ": ada\r\n" + fields + "\r\n\r\n"
}

// response reads a response with its whole body.
func response(t *testing.T, conn net.Conn) httptesting.Reply {
	t.Helper()
	return responseFrom(t, bufio.NewReader(conn))
}

// responseFrom reads the next of several responses.
func responseFrom(t *testing.T, from *bufio.Reader) httptesting.Reply {
	t.Helper()
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return httptesting.Reply{Response: resp, Text: string(text)}
}

// heldUntilRead returns h behind a Middleware. The hold of each request ends in
// its first Read, because only a Read that is under way is cut off.
func heldUntilRead(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var lock *sqllock.Lock
		body := r.Body
		r = r.WithContext(r.Context())
		r.Body = io.NopCloser(bodyFunc(func(p []byte) (int, error) {
			go lock.Cancel(ratelimit.ErrMaxHold) // as the timer of WithMaxHold does
			return body.Read(p)
		}))
		limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lock, _ = sqllock.FromContext(r.Context())
			h(w, r)
		})).ServeHTTP(w, r)
	})
}

// A hold ends in time although its handler waits for a body that never comes.
// Over HTTP/1 the connection ends, over HTTP/2 it does not.
func TestMaxHoldEndsReadOfBody(t *testing.T) {
	t.Parallel()
	ends := make(chan error, 1)
	h := heldUntilRead(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		ends <- err
		http.Error(w, r.RemoteAddr, http.StatusRequestTimeout)
	})
	check := func(r httptesting.Reply) {
		t.Helper()
		r.Want(t, http.StatusRequestTimeout)
		if err := httptesting.Receive(t, ends, "end of Read"); !errors.Is(err, ratelimit.ErrMaxHold) {
			t.Errorf("Read: %v, want ErrMaxHold", err)
		}
	}
	s := httptesting.Serve(t, h)
	for _, fields := range []string{"Content-Length: 10", "Transfer-Encoding: chunked", "Content-Length: 10\r\nExpect: 100-continue"} {
		from := bufio.NewReader(dial(t, s, post(fields)))
		if strings.Contains(fields, "Expect") {
			_, _ = from.Discard(len("HTTP/1.1 100 Continue\r\n\r\n"))
		}
		r := responseFrom(t, from)
		if check(r); !r.Close {
			t.Errorf("%s: the connection may be used again", fields)
		}
	}
	s = httptesting.Serve(t, heldUntilRead(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_, _ = io.ReadAll(r.Body)
	}))
	if r := response(t, dial(t, s, post("Content-Length: 10"))); r.StatusCode != http.StatusOK || r.Text != "begun" || !r.Close {
		t.Errorf("a response that was begun: %+v", r)
	}
	s = httptesting.Protocols[1].Serve(t, h)
	client := ""
	for range 3 {
		body, never := io.Pipe()
		r, err := fetch(t.Context(), s, http.MethodPost, s.URL, body)
		_ = never.Close()
		if err != nil {
			t.Fatal(err)
		}
		if check(r); client != "" && r.Text != client {
			t.Error("another connection was used")
		}
		client = r.Text
	}
}

// A hold that ends after the body was read does not affect the connection. The
// next request on it has a live context, and its body.
func TestMaxHoldAfterBodyLeavesConnection(t *testing.T) {
	t.Parallel()
	s := httptesting.Serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.Context().Err(); err != nil {
			t.Errorf("the context had ended before: %v", err)
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Errorf("Read: %v", err)
		}
		lock, _ := sqllock.FromContext(r.Context())
		lock.Cancel(ratelimit.ErrMaxHold) // as the timer of WithMaxHold does, which a busy machine could let run out earlier
		<-r.Context().Done()
		if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, ratelimit.ErrMaxHold) {
			t.Errorf("Read after the end of the context: %v, want ErrMaxHold", err)
		}
		w.WriteHeader(http.StatusAccepted)
	})))
	conn := dial(t, s, "")
	for range 5 { // a client of net/http would open another connection if it was slow
		transmit(t, conn, whole("body"))
		response(t, conn).Want(t, http.StatusAccepted)
	}
}

// The end of the request's own context leaves the body to the server, as
// without a lock. A trailer that the client has not announced reaches the
// handler. A handler may copy or replace its request while a Read begins and
// ends.
func TestBodyAsWithout(t *testing.T) {
	t.Parallel()
	readAll := func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %v", text, r.Trailer.Get("X-Sum"), err)
	}
	chunks := "Transfer-Encoding: chunked"
	const body, trailer = "4\r\nbody\r\n0\r\n", "X-Sum: 7\r\n\r\n"
	var end context.CancelFunc // of the context around
	for name, tt := range map[string]struct {
		request string
		h       http.HandlerFunc
		want    string
	}{
		"trailer":           {post(chunks) + body + trailer, readAll, "body 7 <nil>"},
		"announced trailer": {post("Trailer: X-Sum\r\n"+chunks) + body + trailer, readAll, "body 7 <nil>"},
		"request copied, body read": {post("Trailer: X-Sum\r\n"+chunks) + body + trailer, func(w http.ResponseWriter, r *http.Request) {
			body, read := r.Body, make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(io.Discard, body)
			}()
			copied := r.WithContext(r.Context())
			<-read
			readAll(w, copied)
		}, " 7 <nil>"},
		"own trailer, body closed": {post(chunks) + body + trailer, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Trailer = http.Header{"X-Sum": {"8"}}
			_ = r.Body.Close()
			_, _ = io.WriteString(w, r.Trailer.Get("X-Sum"))
		}, "8"},
		"body closed elsewhere": {post(chunks) + body + trailer, func(w http.ResponseWriter, r *http.Request) {
			body, read, closed := r.Body, make(chan struct{}), make(chan struct{})
			go func() {
				defer close(closed)
				_, _ = io.Copy(io.Discard, body)
				close(read)
				_ = body.Close()
			}()
			<-read
			_, _ = io.WriteString(w, r.Trailer.Get("X-Sum"))
			<-closed
		}, "7"},
		"context ended": {whole("body"), func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, make([]byte, 1))
			end()
			readAll(w, r)
		}, "ody  <nil>"},
		"request replaced": {whole("x"), func(w http.ResponseWriter, r *http.Request) {
			body, read := r.Body, make(chan struct{})
			go func() {
				defer close(read)
				_, _ = body.Read(make([]byte, 1))
			}()
			*r = *r.WithContext(t.Context())
			<-read
			readAll(w, r)
		}, "  <nil>"},
	} {
		h := limited(sqllock.NewMemory()).Handler(tt.h)
		if name == "context ended" {
			m := h
			h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				end = cancel
				m.ServeHTTP(w, r.WithContext(ctx))
			})
		}
		s := httptesting.Serve(t, h)
		if r := response(t, dial(t, s, tt.request)); r.Text != tt.want {
			t.Errorf("%s: %q, want %q", name, r.Text, tt.want)
		}
	}
}

// A losingBody loses all locks in its second Read.
type losingBody struct {
	io.ReadCloser
	locks *sqllock.Memory
	reads int
}

func (b *losingBody) Read(p []byte) (int, error) {
	if b.reads++; b.reads == 2 {
		go b.locks.Lose()
	}
	return b.ReadCloser.Read(p)
}

// A lost lock ends a Read also after the header was sent. The connection breaks
// then: the rest of the body must not be taken for the next request.
func TestLossWhileReadingInFullDuplex(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	ends := make(chan error, 2)
	h := limited(locks).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		flush(w)
		_, _ = io.ReadFull(r.Body, make([]byte, 1))
		_, err := io.ReadAll(r.Body)
		ends <- err
	}))
	s := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(r.Context())
		r.Body = &losingBody{ReadCloser: r.Body, locks: locks}
		h.ServeHTTP(w, r)
	}))
	conn := dial(t, s, post("Content-Length: 1000")+"x")
	if err := httptesting.Receive(t, ends, "end of Read"); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Read: %v, want ErrLost", err)
	}
	_, _ = io.WriteString(conn, post("Content-Length: 0")) // the server may have closed it
	if got, err := io.ReadAll(conn); strings.Count(string(got), "HTTP/1.1") != 1 {
		t.Errorf("got %q, %v; want one response, and the end of the connection", got, err)
	}
}

// A hijacked connection is the handler's, also after its body was cut off.
func TestHijackAfterALoss(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	h := limited(locks).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		_, _ = io.ReadFull(r.Body, make([]byte, 1))
		if _, err := io.ReadAll(r.Body); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Read: %v, want ErrLost", err)
		}
		conn, _, err := control.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}))
	ends := make(chan any, 1)
	s := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ends <- recover() }()
		r = r.WithContext(r.Context())
		r.Body = &losingBody{ReadCloser: r.Body, locks: locks}
		h.ServeHTTP(w, r)
	}))
	dial(t, s, post("Content-Length: 1000")+"x")
	if got := httptesting.Receive(t, ends, "end of the handler"); got != nil {
		t.Errorf("it panics: %v", got)
	}
}

// A handler that returns at the end of its context may leave a goroutine in a
// Read. The response does not wait for the rest of that body, which is too long
// for the server to drain.
func TestReaderLeftBehindAtTheEnd(t *testing.T) {
	t.Parallel()
	s := httptesting.Serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reads := make(chan struct{})
		go func() {
			_, _ = io.ReadFull(r.Body, make([]byte, 1))
			close(reads)
			_, _ = io.ReadAll(r.Body)
		}()
		<-reads
		lock, _ := sqllock.FromContext(r.Context())
		lock.Cancel(sqllock.ErrLost) // as its loss does
		<-r.Context().Done()
	})))
	for range 200 { // the handler is not always faster than what watches its context
		response(t, dial(t, s, post("Content-Length: 1000000")+"x")).Want(t, http.StatusServiceUnavailable)
	}
}

// A deadlined counts the deadlines that are set on the connection.
type deadlined struct {
	*httptest.ResponseRecorder
	set int
}

func (d *deadlined) SetReadDeadline(time.Time) error { d.set++; return nil }

// A bodyFunc is a body by its Read.
type bodyFunc func([]byte) (int, error)

func (f bodyFunc) Read(p []byte) (int, error) { return f(p) }

// Only a Read that is under way at the end of the hold is cut off. If it brings
// data all the same, the handler gets them. Once the handler has returned, a Read
// is that of the original body. A request without a body still has none.
func TestReadsThatAreNotCutOff(t *testing.T) {
	for name, tt := range map[string]struct {
		during, after, behind bool // the hold ends during a Read, or after it; a Read is left behind
		request               bool // the request ends, and not the hold alone
		deadlines             int
	}{
		"the hold ends during a Read": {during: true, deadlines: 1},
		"the request ends in a Read":  {during: true, request: true},
		"the hold ends after a Read":  {after: true},
		"a Read is left behind":       {behind: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var inner *http.Request
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end := func() {
					if lock, _ := sqllock.FromContext(inner.Context()); tt.request {
						cancel()
					} else {
						lock.Cancel(ratelimit.ErrMaxHold)
					}
					synctest.Wait()
				}
				read := func() {
					if n, err := inner.Body.Read(make([]byte, 1)); n != 1 || err != nil {
						t.Errorf("Read: %d bytes and %v, want a byte", n, err)
					}
				}
				returned := make(chan struct{})
				r := httptest.NewRequest(http.MethodPost, "/", bodyFunc(func([]byte) (int, error) {
					if tt.during {
						end()
					}
					if tt.behind {
						<-returned
					}
					return 1, nil
				})).WithContext(ctx)
				r.Header.Set(user, "ada")
				w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
				limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					inner = r
					if tt.behind {
						go read()
						synctest.Wait()
					} else {
						read()
					}
					if tt.after {
						end()
					}
				})).ServeHTTP(w, r)
				tt.during = false
				close(returned)
				synctest.Wait()
				if w.set != tt.deadlines {
					t.Errorf("%d deadlines are set, want %d", w.set, tt.deadlines)
				}
				if tt.behind {
					read()
				}
			})
		})
	}
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(user, "ada")
		r.Body = body
		limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Body != body {
				t.Errorf("the body is a %T, want %T", r.Body, body)
			}
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
}
