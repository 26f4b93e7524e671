package httpmw_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// whole returns a POST of ada with body.
func whole(body string) string { return post(fmt.Sprint("Content-Length: ", len(body))) + body }

// A client that leaves while it waits loses its place, and its handler never
// runs. That holds for a body of up to 64 KiB, also one that never arrives.
func TestClientThatLeavesLosesItsPlace(t *testing.T) {
	t.Parallel()
	requests := map[string]string{
		"none":       whole(""),
		"small":      whole("body"),
		"64 KiB":     whole(string(big)),
		"incomplete": post("Content-Length: 100") + "body",
		"not begun":  post("Content-Length: 65536"),
	}
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, bare, func(http.ResponseWriter, *http.Request) {})
			const clients = 5
			for n := range clients {
				conn := dial(t, l.Server, request)
				lockertest.Eventually(t, "the request waits", func() bool { return l.limiter.Stats().Queued == 1 })
				_ = conn.Close()
				if err := httptesting.Receive(t, l.refused, "end of a wait"); !errors.Is(err, context.Canceled) {
					t.Errorf("wait %d ended with %v, want Canceled", n, err)
				}
			}
			close(l.leave)
			get(t, l.Server).Want(t, http.StatusOK)
			if n := len(l.entered); n != 1 {
				t.Errorf("%d handlers ran, want that of the last request alone", n)
			}
		})
	}
}

// A request that has waited has its whole body, however long it is and whenever
// its parts arrive. So has the next one on the connection. The end of the
// connection ends the handler's context.
func TestBodyAfterWaiting(t *testing.T) {
	t.Parallel()
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(i * i >> 7)
	}
	for _, size := range []int{1, 4096, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20} {
		for _, early := range []int{0, size / 2, size} {
			t.Run(fmt.Sprint(size, " bytes, ", early, " early"), func(t *testing.T) {
				t.Parallel()
				gone := make(chan error, 2)
				l := newLine(t, bare, func(w http.ResponseWriter, r *http.Request) {
					sum := sha256.New()
					n, err := io.Copy(sum, r.Body)
					if r.URL.Path == "/last" {
						<-r.Context().Done()
						gone <- r.Context().Err()
					}
					_, _ = fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
				})
				header := post(fmt.Sprint("Content-Length: ", size))
				conn := dial(t, l.Server, header)
				sent := make(chan error, 1)
				go func() { // the server may not take it all before the request's turn
					_, err := conn.Write(random[:early])
					sent <- err
				}()
				if early == size {
					httptesting.Receive(t, l.locks.waits, "wait")
				}
				close(l.leave)
				if err := httptesting.Receive(t, sent, "first part"); err != nil {
					t.Fatal(err)
				}
				transmit(t, conn, string(random[early:size])+header+string(random[:size]))
				want := fmt.Sprintf("%d %x <nil>", size, sha256.Sum256(random[:size]))
				from := bufio.NewReader(conn)
				for range 2 {
					if got := responseFrom(t, from).Text; got != want {
						t.Errorf("got %s, want %s", got, want)
					}
				}
				transmit(t, conn, strings.Replace(whole("last"), "/", "/last", 1))
				for path := ""; path != "/last"; {
					path = httptesting.Receive(t, l.entered, "request")
				}
				_ = conn.Close()
				if err := httptesting.Receive(t, gone, "end of the context"); !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want Canceled", err)
				}
			})
		}
	}
}

// A client that is slow with its body keeps its place in line, but others go
// first.
func TestSlowBodyLetsOthersGoFirst(t *testing.T) {
	t.Parallel()
	l := newLine(t, bare, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	slow := dial(t, l.Server, post("Content-Length: 4")+"bo")
	lockertest.Eventually(t, "the request waits", func() bool { return l.limiter.Stats().Queued == 1 })
	quick := l.wait(t, whole("quick"))
	close(l.leave)
	if r := response(t, quick); r.Text != "quick" {
		t.Errorf("got %q, want quick", r.Text)
	}
	transmit(t, slow, "dy")
	if r := response(t, slow); r.Text != "body" {
		t.Errorf("got %q, want body", r.Text)
	}
}

// The end of the wait ends the Read of a body that never arrives. The
// connection then ends. If the body has arrived, it stays, and the handler of
// WithRejectHandler may read it.
func TestWaitEndsReadOfBody(t *testing.T) {
	t.Parallel()
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithWait(time.Second, 1)) // within it a whole body is read
	lock, err := l.Acquire(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	m := httpmw.New(l, httpmw.Header(user), httpmw.WithRejectHandler(func(w http.ResponseWriter, r *http.Request, err error) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = fmt.Fprintf(w, "%s %v", body, errors.Is(err, ratelimit.ErrBusy))
	}))
	s := httptesting.Serve(t, m.Handler(http.NotFoundHandler()))
	for request, closes := range map[string]bool{whole("body"): false, post("Content-Length: 9") + "body": true} {
		r := response(t, dial(t, s, request))
		if r.Want(t, http.StatusTooManyRequests); r.Text != "body true" || r.Close != closes {
			t.Errorf("%q, close %v; want %v", r.Text, r.Close, closes)
		}
	}
}

// The body of a request that waits is read through what is around the
// Middleware: a limit of its size, another Middleware, or a ResponseWriter
// without a read deadline.
func TestBodyAroundTheWait(t *testing.T) {
	t.Parallel()
	outer := httpmw.New(ratelimit.AtMost(2, sqllock.NewMemory(), "tenant"), httpmw.Header(user))
	for name, tt := range map[string]struct {
		around func(http.Handler) http.Handler
		want   string
		closes bool
	}{
		"limit of the size":  {func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 2) }, "bo http: request body too large", true},
		"another Middleware": {outer.Handler, "body <nil>", false},
		"no deadline": {func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
			})
		}, "body <nil>", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, tt.around, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				_, _ = fmt.Fprintf(w, "%s %v", body, err)
			})
			conn := l.wait(t, whole("body"))
			close(l.leave)
			if r := response(t, conn); r.Text != tt.want || r.Close != tt.closes {
				t.Errorf("got %q, close %v; want %q", r.Text, r.Close, tt.want)
			}
		})
	}
}

// A handler that takes the connection over after a wait gets the body that was
// read before it, and what follows, in a buffer as large as the server's.
func TestHijackAfterWaiting(t *testing.T) {
	t.Parallel()
	l := newLine(t, bare, func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 1)
		_, _ = io.ReadFull(r.Body, first)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		asServers := rw.Reader.Buffered() >= len("ody") && rw.Reader.Size() >= 4096
		rest := make([]byte, len("ody and more"))
		_, err = io.ReadFull(rw, rest)
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s%s %v %v", first, rest, asServers, err)
	})
	conn := l.wait(t, whole("body"))
	close(l.leave)
	httptesting.Receive(t, l.entered, "request")
	transmit(t, conn, " and more")
	if r := response(t, conn); r.Text != "body and more true <nil>" {
		t.Errorf("got %q", r.Text)
	}
}

// Over HTTP/1 a short body of known length is read before the wait, if the Read
// can be ended. Others stay unread.
func TestBodiesReadBeforeTheWait(t *testing.T) {
	const most = 64 << 10
	for _, tt := range []struct {
		name       string
		length     int64
		change     func(*http.Request)
		read       bool
		noDeadline bool // the ResponseWriter has none
	}{
		{"short", 1, nil, true, false},
		{"longest", most, nil, true, false},
		{"too long", most + 1, nil, false, false},
		{"of unknown length", -1, nil, false, false},
		{"of no length", 0, nil, false, false},
		{"of HTTP/2", 1, func(r *http.Request) { r.ProtoMajor = 2 }, false, false},
		{"that must be asked for", 1, func(r *http.Request) { r.Header.Set("Expect", "100-continue") }, false, false},
		{"that is gone", 1, func(r *http.Request) { r.Body = nil }, false, false},
		{"without a deadline", 1, nil, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leave := make(chan struct{})
				h := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithWait(time.Hour, 1)), httpmw.Header(user)).
					Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
				go h.ServeHTTP(httptest.NewRecorder(), request("/", user+": ada"))
				synctest.Wait()
				r, read := request("/", user+": ada"), false
				r.Body = io.NopCloser(bodyFunc(func([]byte) (int, error) { read = true; return 0, io.EOF }))
				if r.ContentLength = tt.length; tt.change != nil {
					tt.change(r)
				}
				var w http.ResponseWriter = &deadlined{ResponseRecorder: httptest.NewRecorder()}
				if tt.noDeadline {
					w = httptest.NewRecorder()
				}
				go h.ServeHTTP(w, r)
				if synctest.Wait(); read != tt.read {
					t.Errorf("the body was read: %t", read)
				}
				close(leave)
			})
		})
	}
}
