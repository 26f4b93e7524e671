package httpmw_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A client that leaves while it waits loses its place, and its handler never
// runs. That holds for a body that was not read, and for one that was read to
// its end.
func TestClientThatLeavesLosesItsPlace(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{
		"none":               post("Content-Length: 0"),
		"small":              post("Content-Length: 4") + "body",
		"chunked":            post("Transfer-Encoding: chunked") + "4\r\nbody\r\n0\r\n\r\n",
		"incomplete":         post("Content-Length: 100") + "body",
		"not begun":          post("Content-Length: 100"),
		"chunks to come":     post("Transfer-Encoding: chunked") + "4\r\nbody\r\n",
		"mebibyte":           post("Content-Length: 1048576") + strings.Repeat("x", 1<<20),
		"part of a gibibyte": post("Content-Length: 1073741824") + strings.Repeat("x", 1<<19),
	}
	eachStack(t, func(t *testing.T, levels stack) {
		for name, request := range bodies {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := newLineOf(t, levels, bare, func(http.ResponseWriter, *http.Request) {})
				const clients = 5
				for range clients {
					_ = l.wait(t, request).Close()
				}
				for range clients {
					if err := httptesting.Receive(t, l.refused, "end of a wait"); !errors.Is(err, context.Canceled) {
						t.Errorf("the wait ended with %v, want Canceled", err)
					}
				}
				close(l.leave)
				get(t, l.Server).Want(t, http.StatusOK)
				if n := len(l.entered); n != 1 {
					t.Errorf("%d handlers ran, want that of the last request alone", n)
				}
			})
		}
	})
}

// A client that leaves after its request was admitted ends the handler's
// context.
func TestClientThatLeavesAfterWaiting(t *testing.T) {
	t.Parallel()
	eachStack(t, func(t *testing.T, levels stack) {
		causes := make(chan error, 1)
		l := newLineOf(t, levels, bare, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not look
			<-r.Context().Done()
			causes <- r.Context().Err()
		})
		conn := l.wait(t, post("Content-Length: 4")+"body")
		close(l.leave)
		httptesting.Receive(t, l.entered, "request")
		_ = conn.Close()
		if err := httptesting.Receive(t, causes, "end of the context"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want Canceled", err)
		}
	})
}

// A request that has waited has its whole body, whenever the parts arrive.
func TestBodyAfterWaiting(t *testing.T) {
	t.Parallel()
	random := make([]byte, 3<<20)
	for i := range random {
		random[i] = byte(i * i >> 7)
	}
	sizes := []int{1, 4095, 4096, 4097, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20}
	for _, size := range sizes {
		for _, early := range []int{0, 1, size / 2, size} {
			t.Run(fmt.Sprint(size, " bytes, ", early, " early"), func(t *testing.T) {
				t.Parallel()
				l := newLine(t, func(w http.ResponseWriter, r *http.Request) {
					sum := sha256.New()
					n, err := io.Copy(sum, r.Body)
					_, _ = fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
				})
				conn := l.wait(t, post(fmt.Sprint("Content-Length: ", size)))
				sent := make(chan error, 1)
				go func() { // the server may not take it all before the request's turn
					_, err := conn.Write(random[:early])
					sent <- err
				}()
				close(l.leave)
				httptesting.Receive(t, l.entered, "request")
				if err := httptesting.Receive(t, sent, "first part"); err != nil {
					t.Fatal(err)
				}
				transmit(t, conn, string(random[early:size]))
				want := fmt.Sprintf("%d %x <nil>", size, sha256.Sum256(random[:size]))
				if got := response(t, conn).Text; got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

// That also holds for chunks and a trailer, also one that was not declared. The
// connection stays in use.
func TestChunksAfterWaiting(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %v", body, r.Trailer.Get("X-Sum"), err)
	})
	chunked, end := post("Transfer-Encoding: chunked"), "1\r\n!\r\n0\r\nX-Sum: 7\r\n\r\n"
	late := l.wait(t, chunked+"4\r\nbody\r\n")
	early := l.waitBehind(t, chunked+"4\r\nbody\r\n"+end)
	close(l.leave)
	transmit(t, late, end)
	for _, conn := range []net.Conn{late, early} {
		for range 2 {
			if r := response(t, conn); r.Text != "body! 7 <nil>" {
				t.Errorf("got %q", r.Text)
			}
			transmit(t, conn, chunked+"4\r\nbody\r\n"+end)
		}
		_ = response(t, conn)
	}
}

// Neither a handler's response nor a rejection waits for a body that is not
// read, and may never come.
func TestResponseDoesNotWaitForBody(t *testing.T) {
	t.Parallel()
	respond := map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"body":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") },
		"flush":   func(w http.ResponseWriter, _ *http.Request) { flush(w); _, _ = io.WriteString(w, "done") },
		"close":   func(_ http.ResponseWriter, r *http.Request) { _ = r.Body.Close() },
		"and context": func(w http.ResponseWriter, r *http.Request) {
			flush(w)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the context ended with the response: %v", err)
			}
		},
	}
	for name, h := range respond {
		for _, fields := range []string{"Content-Length: 1000000", "Transfer-Encoding: chunked"} {
			t.Run(name+"/"+fields, func(t *testing.T) {
				t.Parallel()
				l := newLine(t, h)
				conn := l.wait(t, post(fields))
				close(l.leave)
				r := response(t, conn)
				r.Want(t, http.StatusOK)
				if !r.Close {
					t.Error("the connection may be used again")
				}
			})
		}
	}
	t.Run("rejection", func(t *testing.T) {
		t.Parallel()
		l := newLine(t, nil, ratelimit.WithWait(time.Millisecond, 1))
		r := response(t, l.begin(t, post("Content-Length: 1000000")))
		r.Want(t, http.StatusTooManyRequests)
		if !r.Close {
			t.Error("the connection may be used again")
		}
		r = response(t, l.begin(t, post("Content-Length: 4")+"body"))
		r.Want(t, http.StatusTooManyRequests)
		close(l.leave)
	})
}

// A handler that writes while it reads gets the rest of its body.
func TestFullDuplexAfterWaiting(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		flush(w)
		_, _ = io.Copy(w, r.Body)
	})
	conn := l.wait(t, post("Content-Length: 8"))
	close(l.leave)
	httptesting.Receive(t, l.entered, "request")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil) // its header comes before the body
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	transmit(t, conn, "the body")
	if text, err := io.ReadAll(resp.Body); string(text) != "the body" || err != nil {
		t.Errorf("got %q, %v; want the body", text, err)
	}
}

// The end of a hold ends a Read that began in the wait and is still under way.
func TestMaxHoldEndsReadBegunInTheWait(t *testing.T) {
	t.Parallel()
	eachStack(t, func(t *testing.T, levels stack) {
		ends := make(chan error, 1)
		l := newLineOf(t, levels, bare, readingAll(ends), ratelimit.WithMaxHold(20*time.Millisecond))
		conn := l.wait(t, post("Content-Length: 10"))
		close(l.leave)
		if err := httptesting.Receive(t, ends, "end of Read"); !errors.Is(err, ratelimit.ErrMaxHold) {
			t.Errorf("Read: %v, want ErrMaxHold", err)
		}
		response(t, conn).Want(t, http.StatusRequestTimeout)
	})
}

// A limit on the body's size around the Middleware also holds for a request
// that has waited. It sets a header when the body is too large, possibly while
// the handler sets its own.
func TestMaxBytesAroundTheWait(t *testing.T) {
	t.Parallel()
	around := func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 10) }
	l := newLineOf(t, stacks["one limit"], around, func(w http.ResponseWriter, r *http.Request) {
		for range 1000 {
			w.Header().Set("X-Before", "1")
		}
		_, err := io.ReadAll(r.Body)
		var tooLarge *http.MaxBytesError
		if !errors.As(err, &tooLarge) {
			t.Errorf("Read: %v, want a *MaxBytesError", err)
		}
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})
	conn := l.wait(t, post("Content-Length: 100")+"body")
	close(l.leave)
	httptesting.Receive(t, l.entered, "request")
	transmit(t, conn, strings.Repeat("x", 96))
	r := response(t, conn)
	r.Want(t, http.StatusRequestEntityTooLarge)
	if !r.Close || r.Header.Get("X-Before") == "" {
		t.Errorf("header %v, close %v", r.Header, r.Close)
	}
}

// A hold that ends while the handler waits to set a header ends that wait.
func TestMaxHoldAroundTheWait(t *testing.T) {
	t.Parallel()
	around := func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 10) }
	l := newLineOf(t, stacks["one limit"], around, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Before", "1")
		w.WriteHeader(http.StatusAccepted)
	}, ratelimit.WithMaxHold(20*time.Millisecond))
	conn := l.wait(t, post("Content-Length: 100")+"body")
	close(l.leave)
	response(t, conn).Want(t, http.StatusAccepted)
}

// A request waits in an inner Middleware, and its handler returns without the
// body, whose rest never comes. For the outer Middleware that is no
// interruption, also if the handler has written nothing.
func TestWaitInsideOfAnotherMiddleware(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{"Content-Length: 1000000", "Transfer-Encoding: chunked"} {
		for want, h := range map[int]http.Handler{
			http.StatusOK:        http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			http.StatusForbidden: status(http.StatusForbidden),
		} {
			t.Run(fmt.Sprint(fields, " ", want), func(t *testing.T) {
				t.Parallel()
				outer := httpmw.New(ratelimit.AtMost(2, sqllock.NewMemory(), "tenant"), httpmw.Header(user))
				l := newLineOf(t, stacks["one limit"], outer.Handler, h.ServeHTTP)
				conn := l.wait(t, post(fields))
				close(l.leave)
				response(t, conn).Want(t, want)
			})
		}
	}
}

// countedBody is an endless body.
type countedBody struct{ read *atomic.Int64 }

func (b countedBody) Read(p []byte) (int, error) {
	b.read.Add(int64(len(p)))
	return len(p), nil
}
func (countedBody) Close() error { return nil }

// All bodies that one Middleware reads ahead use at most 64 MiB, also the
// second time.
func TestReadAheadIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const requests = 80
		m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithWait(time.Hour, requests)), httpmw.Header(user))
		h := m.Handler(status(http.StatusOK))
		for range 2 {
			lock, err := m.AcquireAll(request("/", user+": ada"))
			if err != nil {
				t.Fatal(err)
			}
			var read atomic.Int64
			for range requests {
				r := request("/", user+": ada")
				r.Method, r.Body = http.MethodPost, countedBody{&read}
				go h.ServeHTTP(struct {
					http.ResponseWriter
					canDelay
				}{httptest.NewRecorder(), canDelay{}}, r)
			}
			synctest.Wait()
			if n := read.Load(); n > 64<<20 || n < 32<<20 {
				t.Errorf("%d bytes were read ahead, want at most 64 MiB, and most of them", n)
			}
			_ = lock.Unlock()
			time.Sleep(time.Second) // until all have ended
		}
	})
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
	from := bufio.NewReader(conn)
	for _, want := range []string{"body <nil>", "next <nil>", "last <nil>"} {
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(text) != want || err != nil {
			t.Errorf("got %q, %v; want %q", text, err, want)
		}
	}
}
