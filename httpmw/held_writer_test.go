package httpmw_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The lock of a hijacked connection is held until the handler returns.
func TestHijack(t *testing.T) {
	t.Parallel()
	m, back := ended()
	s := httptesting.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	})))
	conn := dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: echo\r\nConnection: Upgrade\r\n"+user+": ada\r\n\r\n")
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v; want 101", resp, err)
	}
	defer resp.Body.Close()
	get(t, s).Want(t, http.StatusTooManyRequests)

	transmit(t, conn, "hello\n")
	if line, err := from.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("echo %q, %v; want hello", line, err)
	}
	httptesting.Receive(t, back, "lock of the hijacked connection")
	eventually(t, s, http.StatusOK)
}

// Trailers and a body in both directions at once work, as without the
// Middleware.
func TestStreamsBothWays(t *testing.T) {
	t.Parallel()
	s := httptesting.Protocols[1].Serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Last")
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			_, _ = io.WriteString(w, lines.Text()+"\n")
			flush(w)
			w.Header().Set("X-Last", lines.Text())
		}
	})))
	body, send := io.Pipe()
	go func() { _, _ = io.WriteString(send, "1\n") }()
	resp := open(t, s, http.MethodPost, body)
	lines := bufio.NewReader(resp.Body)
	for _, next := range []string{"2\n", "3\n", ""} {
		if got, err := lines.ReadString('\n'); err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		_, _ = io.WriteString(send, next)
	}
	_ = send.Close()
	if _, err := io.Copy(io.Discard, lines); err != nil || resp.Trailer.Get("X-Last") != "3" {
		t.Errorf("trailer %v, %v; want 3", resp.Trailer, err)
	}
}

// A flushed writer notes whether it was flushed.
type flushed struct {
	header  http.Header
	flushed bool
}

func (w *flushed) Header() http.Header         { return w.header }
func (w *flushed) WriteHeader(int)             {}
func (w *flushed) Write(p []byte) (int, error) { return len(p), nil }
func (w *flushed) Flush()                      { w.flushed = true }

// A Flush waits for the byte that is kept back if the server detects the type of
// the body, for which it reads 512 bytes.
func TestFlushBeforeTheTypeIsKnown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		length  int
		kind    string
		flushes bool
	}{{4, "text/plain", true}, {4, "", false}, {512, "", false}, {513, "", true}} {
		below := &flushed{header: http.Header{}}
		limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if tt.kind != "" {
				w.Header().Set("Content-Type", tt.kind)
			}
			if lengthy(big[:tt.length])(w, r); below.flushed != tt.flushes {
				t.Errorf("%d bytes of type %q were flushed: %t", tt.length, tt.kind, below.flushed)
			}
		})).ServeHTTP(below, request("/", user+": ada"))
	}
}

// A narrow writer takes four bytes of each call, without an error.
type narrow struct {
	header http.Header
	body   strings.Builder
}

func (w *narrow) Header() http.Header                     { return w.header }
func (w *narrow) WriteHeader(int)                         {}
func (w *narrow) Write(p []byte) (int, error)             { return w.body.Write(p[:min(4, len(p))]) }
func (w *narrow) WriteString(s string) (n int, err error) { return w.Write([]byte(s)) }

// A handler learns how many bytes the writer below has taken.
func TestShortWrites(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(io.Writer, string) (int, error){
		"Write":       func(w io.Writer, s string) (int, error) { return w.Write([]byte(s)) },
		"WriteString": io.WriteString,
	} {
		const body = "0123456789"
		below := &narrow{header: http.Header{}}
		limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			for rest := body; rest != ""; {
				n, err := write(w, rest)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				rest = rest[n:]
			}
		})).ServeHTTP(below, request("/", user+": ada"))
		if got := below.body.String(); got != body {
			t.Errorf("%s: the writer below has %q, want %q", name, got, body)
		}
	}
}

// A Flush that the writer below does not have begins no response, so the last
// byte of what comes after it is kept back.
func TestFlushWithoutAFlusher(t *testing.T) {
	t.Parallel()
	below := &narrow{header: http.Header{}}
	limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Flush: %v, want ErrNotSupported", err)
		}
		if lengthy([]byte("done"))(w, r); below.body.String() != "don" {
			t.Errorf("under the lock the writer below has %q, want %q", below.body.String(), "don")
		}
	})).ServeHTTP(below, request("/", user+": ada"))
	if got := below.body.String(); got != "done" {
		t.Errorf("in the end the writer below has %q, want %q", got, "done")
	}
}
