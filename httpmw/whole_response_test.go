package httpmw_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A shape is a way to respond to a request with method.
type shape struct {
	name   string
	method string
	h      http.HandlerFunc
}

// big does not fit into any buffer of the server.
var big = bytes.Repeat([]byte("0123456789abcdef"), 1<<12)

func flush(w http.ResponseWriter) { w.(http.Flusher).Flush() }

// shapes returns the ways in which handlers respond. Most would complete the
// response before they return.
func shapes() []shape {
	return []shape{
		{"nothing", "GET", func(http.ResponseWriter, *http.Request) {}},
		{"status alone", "GET", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }},
		{"small", "GET", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }},
		{"small, flushed", "GET", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done"); flush(w) }},
		{"big", "GET", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big) }},
		{"big, flushed", "GET", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big); flush(w) }},
		{"flush first", "GET", func(w http.ResponseWriter, _ *http.Request) { flush(w); _, _ = w.Write(big) }},
		{"events", "GET", events},
		{"trailers", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = w.Write(big)
			flush(w)
			w.Header().Set("X-Sum", "1")
		}},
		{"length", "GET", lengthy(big, false)},
		{"length, flushed", "GET", lengthy(big, true)},
		{"length, small, flushed", "GET", lengthy([]byte("done"), true)},
		{"length of one, flushed", "GET", lengthy([]byte("x"), true)},
		{"length of zero, flushed", "GET", lengthy(nil, true)},
		{"length, byte by byte", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			for i := range 100 {
				_, _ = w.Write(big[i : i+1])
				flush(w)
			}
		}},
		{"length, as a string", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(big)))
			_, _ = io.WriteString(w, strings.Repeat("x", len(big)))
			flush(w)
		}},
		{"length, by the controller", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(big)))
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(big)
			_ = http.NewResponseController(w).Flush()
		}},
		{"length, copied", "GET", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(big)))
			_, _ = io.Copy(w, struct{ io.Reader }{bytes.NewReader(big)})
			flush(w)
		}},
		{"hints first", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			lengthy(big, true)(w, r)
		}},
		{"error", "GET", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusTeapot)
			flush(w)
		}},
		{"no content, flushed", "GET", statusAndFlush(http.StatusNoContent)},
		{"not modified, flushed", "GET", statusAndFlush(http.StatusNotModified)},
		{"head, flushed", "HEAD", lengthy(big, true)},
		{"head, empty, flushed", "HEAD", statusAndFlush(http.StatusOK)},
		{"head, big", "HEAD", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big) }},
		{"head, copied", "HEAD", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, struct{ io.Reader }{bytes.NewReader(big)})
		}},
	}
}

func lengthy(body []byte, flushed bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
		if flushed {
			flush(w)
		}
	}
}

func statusAndFlush(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		flush(w)
	}
}

func events(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 3 {
		_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
		flush(w)
	}
}

// fileShapes returns shapes that serve files of many sizes, in all ways of the
// standard library.
func fileShapes(t *testing.T) []shape {
	t.Helper()
	dir := t.TempDir()
	var all []shape
	for _, size := range []int{400, 511, 512, 513, 4096, 1 << 20} {
		name := filepath.Join(dir, strconv.Itoa(size))
		if err := os.WriteFile(name, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
			t.Fatal(err)
		}
		serveFile := func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }
		all = append(all, shape{fmt.Sprintf("file of %d", size), "GET", serveFile},
			shape{fmt.Sprintf("head of a file of %d", size), "HEAD", serveFile})
	}
	content := func(ranges string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			f, err := os.Open(filepath.Join(dir, "4096"))
			if err != nil {
				panic(err)
			}
			defer f.Close()
			r.Header.Set("Range", ranges)
			http.ServeContent(w, r, "f", time.Time{}, f)
		}
	}
	files := http.FileServer(http.Dir(dir))
	return append(all,
		shape{"range", "GET", content("bytes=0-1023")},
		shape{"last bytes", "GET", content("bytes=-600")},
		shape{"ranges", "GET", content("bytes=0-1023,2048-3071")},
		shape{"file server", "GET", func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/4096"
			files.ServeHTTP(w, r)
		}},
		shape{"file not modified", "GET", func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("If-Modified-Since", time.Now().UTC().Add(time.Hour).Format(http.TimeFormat))
			http.ServeFile(w, r, filepath.Join(dir, "4096"))
			flush(w)
		}})
}

// A recordedListener records what its connections have sent. net/http has
// written what a handler writes when the handler's Flush returns.
type recordedListener struct {
	net.Listener
	mu   sync.Mutex
	sent bytes.Buffer
}

type recordedConn struct {
	net.Conn
	l *recordedListener
}

func (l *recordedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return recordedConn{conn, l}, err
}

func (c recordedConn) Write(p []byte) (int, error) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.sent.Write(p)
	return c.Conn.Write(p)
}

// ReadFrom makes net/http pass files to it.
func (c recordedConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// bytes returns what was sent up to now.
func (l *recordedListener) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.sent.Bytes())
}

// completeHTTP1 reports whether sent is a whole response.
func completeHTTP1(sent []byte, method string) bool {
	from := bufio.NewReader(bytes.NewReader(sent))
	for {
		resp, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			return false
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode >= 200 {
			return err == nil
		}
	}
}

// completeHTTP2 reports whether the frames in sent are a whole response: they
// end the stream, or their data have a declared length that is not 0.
func completeHTTP2(sent []byte, length int64) bool {
	const headerSize, data, headers, endStream = 9, 0, 1, 1
	var received int64
	for len(sent) >= headerSize {
		size, kind, flags := int(sent[0])<<16|int(sent[1])<<8|int(sent[2]), sent[3], sent[4]
		if kind == data {
			received += int64(size)
		}
		if (kind == data || kind == headers) && flags&endStream != 0 || length > 0 && received == length {
			return true
		}
		sent = sent[min(len(sent), headerSize+size):]
	}
	return false
}

// Whatever the handler does, the response is incomplete when the lock is
// released. The Observer checks that: Unlock calls it before the key is free.
func TestResponseIsIncompleteBeforeUnlock(t *testing.T) {
	t.Parallel()
	all := append(shapes(), fileShapes(t)...)
	eachStack(t, func(t *testing.T, levels stack) {
		for _, over := range transports {
			if over.name == "HTTP/2" {
				continue // TLS hides the frames, which are those of h2c
			}
			for _, tt := range all {
				t.Run(over.name+"/"+tt.name, func(t *testing.T) {
					t.Parallel()
					testIncompleteBeforeUnlock(t, levels, over, tt)
				})
			}
		}
	})
}

func testIncompleteBeforeUnlock(t *testing.T, levels stack, over transport, tt shape) {
	sent, released := new(recordedListener), make(chan []byte, len(levels))
	m := levels.over(sqllock.NewMemory(), onRelease(func() { released <- sent.bytes() }))
	s := httptest.NewUnstartedServer(m.Handler(tt.h))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	sent.Listener = s.Listener
	s.Listener = sent
	over.server(s)
	defer s.Close()
	client := over.client(s)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), tt.method, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(user, "ada")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	complete := func(sent []byte) bool { return completeHTTP1(sent, tt.method) }
	if over.name == "h2c" {
		length := resp.ContentLength
		if tt.method == http.MethodHead {
			length = 0
		}
		complete = func(sent []byte) bool { return completeHTTP2(sent, length) }
	}
	for range levels {
		if complete(httptesting.Receive(t, released, "release")) {
			t.Error("the client had the whole response before the lock was back")
		}
	}
	if !complete(sent.bytes()) {
		t.Error("the response never became complete")
	}
}

// Each response is the same as without the Middleware.
func TestResponsesAreAsWithout(t *testing.T) {
	t.Parallel()
	all := append(shapes(), fileShapes(t)...)
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range all {
				bare, behind := p.Serve(t, tt.h), p.Serve(t, limited(sqllock.NewMemory()).Handler(tt.h))
				want, err := fetch(t.Context(), bare, tt.method, bare.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := fetch(t.Context(), behind, tt.method, behind.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				if a, b := described(want), described(got); a != b {
					t.Errorf("%s: got\n%s\nwant\n%s", tt.name, b, a)
				}
			}
		})
	}
}

// described returns a response without what changes each time.
func described(r httptesting.Reply) string {
	r.Header.Del("Date")
	text := r.Text
	contentType := r.Header.Get("Content-Type")
	if _, boundary, ok := strings.Cut(contentType, "boundary="); ok { // is random
		r.Header.Set("Content-Type", "multipart/byteranges")
		text = strings.ReplaceAll(text, boundary, "")
	}
	if r.StatusCode == http.StatusNoContent || r.StatusCode == http.StatusNotModified {
		r.ContentLength = 0 // over HTTP/2 a flushed header does not say so
	}
	return fmt.Sprint(r.StatusCode, r.Header, r.Trailer, r.ContentLength, r.TransferEncoding, r.Uncompressed, text)
}

// Too many or too few bytes for the declared length have the same result as
// without the Middleware: an error, and a response that is visibly broken.
func TestWrongContentLength(t *testing.T) {
	t.Parallel()
	wrote := make(chan error, 1)
	s := httptesting.Serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "4")
		var err error
		switch r.URL.Path {
		case "/more":
			_, err = io.WriteString(w, "done and more")
		case "/more-later":
			_, _ = io.WriteString(w, "done")
			_, err = io.WriteString(w, "x")
		case "/less":
			_, err = io.WriteString(w, "don")
		case "/panic":
			_, err = io.WriteString(w, "done")
			flush(w)
			wrote <- err
			panic(http.ErrAbortHandler)
		}
		wrote <- err
	})))
	for path, want := range map[string]error{"/more": http.ErrContentLength, "/more-later": http.ErrContentLength, "/less": nil, "/panic": nil} {
		r, err := fetch(t.Context(), s, http.MethodGet, s.URL+path, nil)
		if got := httptesting.Receive(t, wrote, "Write"); !errors.Is(got, want) {
			t.Errorf("%s: Write: %v, want %v", path, got, want)
		}
		if (err == nil) != (path == "/more-later") {
			t.Errorf("%s: %q, %v", path, r.Text, err)
		}
	}
}

// The last byte is kept back also if middleware around has set the
// Content-Length.
func TestContentLengthFromAround(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	seen := ""
	w.Header().Set("Content-Length", "4")
	m := stacks["one limit"].over(sqllock.NewMemory(), onRelease(func() { seen = w.Body.String() }))
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "done")
	})).ServeHTTP(w, request("/", user+": ada"))
	if seen == "done" {
		t.Error("the client had all before the lock was back")
	}
}
