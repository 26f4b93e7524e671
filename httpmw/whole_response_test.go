package httpmw_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
)

// A shape is a way to respond.
type shape struct {
	name    string
	flushes bool
	h       http.HandlerFunc
}

// big does not fit into any buffer of the server.
var big = bytes.Repeat([]byte("0123456789abcdef"), 1<<12)

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// specialShapes returns ways to respond that matter by themselves.
func specialShapes(t *testing.T) []shape {
	t.Helper()
	dir := t.TempDir()
	file := func(size int) string { return filepath.Join(dir, strconv.Itoa(size)) }
	for _, size := range []int{400, 511, 512, 513, 4096, 1 << 20} {
		if err := os.WriteFile(file(size), bytes.Repeat([]byte("x"), size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve := func(size int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file(size)) }
	}
	with := func(name, value string, h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { r.Header.Set(name, value); h(w, r) }
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); flush(w) }
	}
	return []shape{
		{"nothing", false, func(http.ResponseWriter, *http.Request) {}},
		{"status", true, status(http.StatusCreated)},
		{"no content", true, status(http.StatusNoContent)},
		{"not modified", true, status(http.StatusNotModified)},
		{"small", false, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }},
		{"big", false, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big) }},
		{"length", true, lengthy(big)},
		{"length of zero", true, lengthy(nil)},
		{"bad length", false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "-4")
			_, _ = io.WriteString(w, "done")
		}},
		{"status after a flush", true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "0")
			flush(w)
			w.WriteHeader(http.StatusCreated)
		}},
		{"events", true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				flush(w)
			}
		}},
		{"trailers", true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = w.Write(big)
			flush(w)
			w.Header().Set("X-Sum", "1")
		}},
		{"hints first", true, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			lengthy(big)(w, r)
		}},
		{"error", true, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot); flush(w) }},
		{"panic", true, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "do")
			flush(w)
			panic(http.ErrAbortHandler)
		}},
		{"echo", false, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }},
		{"echo of the length", false, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			_, _ = fmt.Fprint(w, len(body), err, r.Trailer)
		}},
		{"closed body", false, func(w http.ResponseWriter, r *http.Request) {
			_ = r.Body.Close()
			n, err := r.Body.Read(make([]byte, 10))
			_, _ = fmt.Fprint(w, n, err)
		}},
		{"file of 400", false, serve(400)},
		{"file of 511", false, serve(511)},
		{"file of 512", false, serve(512)},
		{"file of 513", false, serve(513)},
		{"file of 4096", false, serve(4096)},
		{"file of 1 MiB", false, serve(1 << 20)},
		{"source with more behind its end", false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.Copy(w, &resumed{parts: []string{"01234", "", "56789"}})
		}},
		{"range", false, with("Range", "bytes=0-1023", serve(4096))},
		{"last bytes", false, with("Range", "bytes=-600", serve(4096))},
		{"file not modified", false, with("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT", serve(4096))},
	}
}

// A resumed source returns its parts in turn. An empty one is an io.EOF.
type resumed struct{ parts []string }

func (r *resumed) Read(p []byte) (n int, err error) {
	if len(r.parts) > 0 {
		n = copy(p, r.parts[0])
		r.parts = r.parts[1:]
	}
	if n == 0 {
		err = io.EOF
	}
	return n, err
}

func lengthy(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
		flush(w)
	}
}

// madeShapes returns each combination of a size, a way to write, a declared
// length and moments of a Flush.
func madeShapes() (all []shape) {
	writes := map[string]func(w io.Writer, p []byte){
		"write": func(w io.Writer, p []byte) { _, _ = w.Write(p) },
		"string": func(w io.Writer, p []byte) {
			text := string(p)
			_, _ = io.WriteString(w, text)
		},
		"pieces": func(w io.Writer, p []byte) {
			for ; len(p) > 700; p = p[700:] {
				_, _ = w.Write(p[:700])
			}
			_, _ = w.Write(p)
		},
		"copy": func(w io.Writer, p []byte) { _, _ = io.Copy(w, struct{ io.Reader }{bytes.NewReader(p)}) },
	}
	for _, size := range []int{0, 1, 511, 512, 2048, 4096, 4097, 12_000} {
		for how, write := range writes {
			for _, declared := range []int{-1, size, size + 1, max(0, size-1)} { // unknown, right, wrong
				if how == "copy" && 0 <= declared && declared < size {
					continue // net/http's ReadFrom sends bytes behind the end of the response
				}
				for _, flushes := range []string{"never", "first", "between", "last"} {
					h := func(w http.ResponseWriter, _ *http.Request) {
						if declared >= 0 {
							w.Header().Set("Content-Length", strconv.Itoa(declared))
						}
						for i, moment := range []string{"first", "between", "last"} {
							if moment == flushes {
								flush(w)
							}
							if i < 2 {
								write(w, big[i*(size/2):size/2+i*(size-size/2)])
							}
						}
					}
					all = append(all, shape{fmt.Sprintf("%s %d of %d, flush %s", how, size, declared, flushes), flushes != "never", h})
				}
			}
		}
	}
	return all
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

// bytes returns what was sent since the last reset.
func (l *recordedListener) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.sent.Bytes())
}

func (l *recordedListener) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent.Reset()
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

// The protocols without TLS, which would hide the bytes.
const http1, h2c = "HTTP/1.1", "h2c"

// A recordedServer is a server whose bytes a test reads.
type recordedServer struct {
	*httptest.Server
	sent *recordedListener
	over string // http1 or h2c
}

func record(t *testing.T, over string, h http.Handler) recordedServer {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	sent := &recordedListener{Listener: s.Listener}
	s.Listener = sent
	protocols := new(http.Protocols)
	protocols.SetHTTP1(over == http1)
	protocols.SetUnencryptedHTTP2(over == h2c)
	s.Config.Protocols = protocols
	s.Start()
	t.Cleanup(s.Close)
	s.Client().Transport.(*http.Transport).Protocols = protocols
	return recordedServer{s, sent, over}
}

// A kindOfClient is how a client asks.
type kindOfClient struct {
	name, method string
	body         func() io.Reader
}

var kindsOfClients = []kindOfClient{
	{"GET", http.MethodGet, func() io.Reader { return nil }},
	{"HEAD", http.MethodHead, func() io.Reader { return nil }},
	{"POST", http.MethodPost, func() io.Reader { return strings.NewReader("body") }},
	{"POST in chunks", http.MethodPost, func() io.Reader { return struct{ io.Reader }{bytes.NewReader(big)} }},
}

// send returns the response to the nth shape, and its body. broken says that
// the body is not whole.
func (s recordedServer) send(t *testing.T, kind kindOfClient, n int) (r httptesting.Reply, broken bool) {
	t.Helper()
	if s.over == http1 { // after a wrong Content-Length the server closes a connection that the client could use
		s.Client().CloseIdleConnections()
	}
	s.sent.reset()
	req, err := http.NewRequestWithContext(t.Context(), kind.method, s.URL, kind.body())
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(user, strconv.Itoa(n)) // one key each: a flushed response to HEAD ends before its lock is free
	req.Header.Set("Shape", strconv.Itoa(n))
	resp, err := s.Client().Do(req)
	if err != nil {
		return httptesting.Reply{Response: new(http.Response)}, true
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	resp.Header.Del("Date")
	return httptesting.Reply{Response: resp, Text: string(text)}, err != nil
}

var date = regexp.MustCompile(`Date: [^\r]*\r\n`)

// Each response is the same as without the Middleware: status, header, trailer
// and body, and over HTTP/1 each byte that the server sends. Whatever the
// handler does, the response is incomplete when the lock is released. The
// Observer checks that: Unlock calls it before the key is free.
//
// isDocumented has the differences. TestResponseBegunIsLeftAlone shows one more:
// 503 in place of an empty 200.
func TestResponsesAreAsWithout(t *testing.T) {
	t.Parallel()
	all := append(madeShapes(), specialShapes(t)...)
	if n := len(all) * 2 * len(kindsOfClients); n < 2000 {
		t.Errorf("%d combinations, want at least 2,000", n)
	}
	for _, over := range []string{http1, h2c} {
		for _, kind := range kindsOfClients {
			t.Run(over+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				testAsWithout(t, all, over, kind)
			})
		}
	}
}

func testAsWithout(t *testing.T, all []shape, over string, kind kindOfClient) {
	responds := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.Header.Get("Shape"))
		all[n].h(w, r)
	})
	released := make(chan []byte, 1)
	var behind recordedServer
	m := releasing(func() { released <- behind.sent.bytes() })
	bare := record(t, over, responds)
	behind = record(t, over, m.Handler(responds))
	described := func(s recordedServer, r httptesting.Reply, broken bool) string {
		if over == http1 {
			return string(date.ReplaceAll(s.sent.bytes(), nil))
		}
		return fmt.Sprint(r.StatusCode, r.Header, r.Trailer, r.ContentLength, broken, r.Text)
	}
	for n, tt := range all {
		without, brokenWithout := bare.send(t, kind, n)
		want := described(bare, without, brokenWithout)
		with, broken := behind.send(t, kind, n)
		got := described(behind, with, broken)
		early := httptesting.Receive(t, released, "release")
		if got != want && !isDocumented(over, kind, without, with, broken && brokenWithout) {
			t.Errorf("%s: got\n%.300q\nwant\n%.300q", tt.name, got, want)
		}
		flushed := kind.method == http.MethodHead && tt.flushes
		if !flushed && complete(over, kind, early, with.ContentLength) {
			t.Errorf("%s: the client had the whole response before the lock was back", tt.name)
		}
	}
}

// isDocumented reports whether two responses that differ do so as the
// documentation says:
//
//   - Over HTTP/2 a Flush does not send the header of a response without a
//     body. So the header has what the server knows at the end.
//   - Over HTTP/2 bytes beyond a declared Content-Length are not sent. The
//     response is broken in both cases.
//   - Over HTTP/1 a copy (io.ReaderFrom) does not send the header of a response
//     to HEAD. So it has a Content-Length, if the server knows that at the end.
//
// A Flush of a response to HEAD is no difference, but it completes the response
// before the lock is released.
func isDocumented(over string, kind kindOfClient, without, with httptesting.Reply, broken bool) bool {
	if without.StatusCode != with.StatusCode {
		return false
	}
	if over == h2c {
		return broken || with.ContentLength == 0 && without.ContentLength <= 0
	}
	return kind.method == http.MethodHead && without.ContentLength == -1 && with.ContentLength > 0
}

// complete reports whether sent is a whole response, to a client that knows its
// Content-Length.
func complete(over string, kind kindOfClient, sent []byte, length int64) bool {
	if over != h2c {
		return completeHTTP1(sent, kind.method)
	}
	if kind.method == http.MethodHead {
		length = 0
	}
	return completeHTTP2(sent, length)
}

// The last byte is kept back also if middleware around has set the
// Content-Length.
func TestContentLengthFromAround(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	seen := ""
	w.Header().Set("Content-Length", "4")
	m := releasing(func() { seen = w.Body.String() })
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "done")
	})).ServeHTTP(w, request("/", user+": ada"))
	if seen == "done" {
		t.Error("the client had all before the lock was back")
	}
}
