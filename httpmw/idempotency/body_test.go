package idempotency_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// around returns a handler that calls do before next.
func around(do func(w http.ResponseWriter, r *http.Request), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		do(w, r)
		next.ServeHTTP(w, r)
	})
}

// eachSending runs test over both protocols, with and without a Content-Length.
func eachSending(t *testing.T, test func(t *testing.T, p httptesting.Protocol, chunked bool)) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/chunked=%v", p.Name, chunked), func(t *testing.T) {
				t.Parallel()
				test(t, p, chunked)
			})
		}
	}
}

func contentType(value string) http.Header { return http.Header{"Content-Type": {value}} }

const (
	formType      = "application/x-www-form-urlencoded"
	multipartType = "multipart/form-data; boundary=x"
)

func multipartBody(to string) string {
	return "--x\r\nContent-Disposition: form-data; name=\"to\"\r\n\r\n" + to + "\r\n--x--\r\n"
}

// A body that a handler around has read cannot be compared. The request has no
// effect, and the log says what to change. Two payloads are never taken for
// one.
func TestBodyConsumed(t *testing.T) {
	read := func(w http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }
	var to struct{ To string }
	decode := func(_ http.ResponseWriter, r *http.Request) { _ = json.NewDecoder(r.Body).Decode(&to) }
	form := func(_ http.ResponseWriter, r *http.Request) { _ = r.FormValue("to") }
	for name, tt := range map[string]struct {
		consume func(w http.ResponseWriter, r *http.Request)
		header  http.Header
		bodies  [2]string
	}{
		"FormValue": {form, contentType(formType), [2]string{"to=bob", "to=eve"}},
		"FormValue, limited": {
			func(w http.ResponseWriter, r *http.Request) {
				r.Body = http.MaxBytesReader(w, r.Body, 1000)
				_ = r.FormValue("to")
			}, contentType(formType), [2]string{"to=bob", "to=eve"},
		},
		"FormValue, multipart": {form, contentType(multipartType), [2]string{multipartBody("bob"), multipartBody("eve")}},
		"MultipartReader": {
			func(_ http.ResponseWriter, r *http.Request) {
				parts, err := r.MultipartReader()
				if err == nil {
					_, _ = parts.NextPart()
				}
			}, contentType(multipartType), [2]string{multipartBody("bob"), multipartBody("eve")},
		},
		"read": {read, nil, [2]string{"to=bob", "to=eve"}},
		"read and closed": {
			func(w http.ResponseWriter, r *http.Request) {
				read(w, r)
				_ = r.Body.Close()
			}, nil, [2]string{"to=bob", "to=eve"},
		},
		"read and replaced": {
			func(w http.ResponseWriter, r *http.Request) {
				read(w, r)
				r.Body = http.NoBody
			}, nil, [2]string{"to=bob", "to=eve"},
		},
		"read and taken away": {
			func(w http.ResponseWriter, r *http.Request) {
				read(w, r)
				r.Body = nil
			}, nil, [2]string{"to=bob", "to=eve"},
		},
		"decoded": {decode, contentType("application/json"), [2]string{`{"to":"bob"}`, `{"to":"eve"}`}},
		"decoded up to a space": { // the decoder's first read ends where the value does
			func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadFull(r.Body, make([]byte, len(`{"to":"bob"}`)))
			}, contentType("application/json"), [2]string{"{\"to\":\"bob\"}\r\n", "{\"to\":\"eve\"}\r\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachSending(t, func(t *testing.T, p httptesting.Protocol, chunked bool) {
				b := oneBank(t)
				mux := http.NewServeMux()
				mux.Handle("/", around(tt.consume, b.once(b.locks()).Handler(b.pay(http.StatusCreated))))
				s := p.Serve(t, mux)
				for _, body := range tt.bodies {
					mustAsk(t, s, demand{key: "k-1", header: tt.header, body: body, chunked: chunked}).Want(t, http.StatusInternalServerError)
				}
				b.wantEffects(0)
				b.wantLog("put the middleware outside")
			})
		})
	}
}

// A body that was read in part is detected if the request has a Content-Length,
// and the body is net/http's own.
func TestBodyConsumedInPart(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			peek := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 2)) }
			mux := http.NewServeMux()
			mux.Handle("/", around(peek, b.once(b.locks()).Handler(b.pay(http.StatusCreated))))
			mustAsk(t, p.Serve(t, mux), demand{key: "k-1", body: "to=bob"}).Want(t, http.StatusInternalServerError)
			b.wantEffects(0)
			b.wantLog("put the middleware outside")
		})
	}
}

// A body that was read in part outside of an httpmw.Middleware is detected by
// its length, as without that Middleware.
func TestBodyConsumedAroundMiddleware(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	locks := b.locks()
	mux := http.NewServeMux()
	mux.Handle("/", b.once(locks).Handler(b.pay(http.StatusCreated)))
	limit := httpmw.New(ratelimit.OneAtATime(locks, "user"), httpmw.Header(user))
	s := httptesting.Serve(t, around(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, len(r.Header.Get("X-Peek"))))
	}, limit.Handler(mux)))
	d := demand{key: "k-1", body: "to=bob", header: http.Header{"X-Peek": {"12"}}}
	mustAsk(t, s, d).Want(t, http.StatusInternalServerError)
	b.wantEffects(0)
	d.header = nil
	mustAsk(t, s, d).Want(t, http.StatusCreated)
	b.wantEffects(1)
}

// The body of an httpmw.Middleware around knows whether it was read, also
// without a Content-Length.
func TestBodyConsumedBelowMiddleware(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	locks := b.locks()
	mux := http.NewServeMux()
	mux.Handle("/", b.once(locks).Handler(b.pay(http.StatusCreated)))
	limit := httpmw.New(ratelimit.OneAtATime(locks, "user"), httpmw.Header(user))
	peek := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, len(r.Header.Get("X-Peek"))))
	}
	s := httptesting.Serve(t, limit.Handler(around(peek, mux)))
	for _, chunked := range []bool{false, true} {
		d := demand{key: "k-1", body: "to=bob", chunked: chunked, header: http.Header{"X-Peek": {"12"}}}
		mustAsk(t, s, d).Want(t, http.StatusInternalServerError)
	}
	b.wantEffects(0)
	b.wantLog("put the middleware outside")
	mustAsk(t, s, demand{key: "k-1", body: "to=bob", chunked: true}).Want(t, http.StatusCreated)
	b.wantEffects(1)
}

// gunzip decompresses a body as many middlewares do. Some leave the header
// fields of the compressed body.
func gunzip(t *testing.T, tidy func(r *http.Request)) func(http.ResponseWriter, *http.Request) {
	return func(_ http.ResponseWriter, r *http.Request) {
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		r.Body = body
		tidy(r)
	}
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// A handler around may read a body and restore or replace it. The handler gets
// that body, a retry gets the response, and another payload gets 422.
func TestBodyRestored(t *testing.T) {
	plain := [2]string{"to=bob", "to=eve"}
	long := strings.Repeat("to=bob&", 1000)
	restore := func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	for name, tt := range map[string]struct {
		around func(w http.ResponseWriter, r *http.Request)
		header http.Header
		encode func(string) string
		bodies [2]string
	}{
		"nothing":  {func(http.ResponseWriter, *http.Request) {}, nil, nil, plain},
		"restored": {restore, nil, nil, plain},
		"restored for a form": {
			func(w http.ResponseWriter, r *http.Request) {
				restore(w, r)
				body := r.Body
				_ = r.FormValue("to")
				text := r.PostForm.Encode()
				_ = body.Close()
				r.Body = io.NopCloser(strings.NewReader(text))
			}, contentType(formType), nil, plain,
		},
		"FormValue without a form": { // ParseForm leaves JSON alone
			func(_ http.ResponseWriter, r *http.Request) { _ = r.FormValue("_method") }, contentType("application/json"), nil,
			[2]string{`{"to":"bob"}`, `{"to":"eve"}`},
		},
		"limited":                {func(w http.ResponseWriter, r *http.Request) { r.Body = http.MaxBytesReader(w, r.Body, 1000) }, nil, nil, plain},
		"gunzipped":              {gunzip(t, func(*http.Request) {}), nil, gzipped, plain},
		"gunzipped, header gone": {gunzip(t, func(r *http.Request) { r.Header.Del("Content-Encoding") }), nil, gzipped, plain},
		"gunzipped, tidied": {
			gunzip(t, func(r *http.Request) {
				r.Header.Del("Content-Encoding")
				r.Header.Del("Content-Length")
				r.ContentLength = -1
			}), nil, gzipped, plain,
		},
		"gunzipped, limited": {
			func(w http.ResponseWriter, r *http.Request) {
				gunzip(t, func(r *http.Request) { r.Header.Del("Content-Encoding") })(w, r)
				r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
			}, nil, gzipped, plain,
		},
		"gunzipped, long": {gunzip(t, func(*http.Request) {}), nil, gzipped, [2]string{long, long + "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachSending(t, func(t *testing.T, p httptesting.Protocol, chunked bool) {
				b := oneBank(t)
				mux := http.NewServeMux()
				mux.Handle("/", around(tt.around, b.once(b.locks()).Handler(b.pay(http.StatusCreated))))
				s := p.Serve(t, mux)
				send := func(text string) httptesting.Reply {
					d := demand{key: "k-1", header: maps.Clone(tt.header), body: text, chunked: chunked}
					if tt.encode != nil {
						d.body, d.header = tt.encode(text), http.Header{"Content-Encoding": {"gzip"}}
					}
					return mustAsk(t, s, d)
				}
				first := send(tt.bodies[0])
				first.Want(t, http.StatusCreated)
				wantReplay(t, send(tt.bodies[0]), first)
				send(tt.bodies[1]).Want(t, http.StatusUnprocessableEntity)
				if n := b.number("SELECT count(*) FROM ledger WHERE note = $1", tt.bodies[0]); n != 1 {
					t.Errorf("%d effects of the body, want 1", n)
				}
			})
		})
	}
}

// Parsing a form from an empty body consumes nothing.
func TestBodyEmpty(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			b := oneBank(t)
			parse := func(_ http.ResponseWriter, r *http.Request) { _ = r.FormValue("to") }
			mux := http.NewServeMux()
			mux.Handle("/", around(parse, b.once(b.locks()).Handler(b.pay(http.StatusCreated))))
			s := p.Serve(t, http.MaxBytesHandler(mux, 1))
			for _, h := range []http.Header{nil, contentType(formType)} {
				d := demand{key: "k-1", header: h, path: "/?to=bob", who: "ada-" + h.Get("Content-Type")}
				first := mustAsk(t, s, d)
				first.Want(t, http.StatusCreated)
				wantReplay(t, mustAsk(t, s, d), first)
			}
		})
	}
}

// An empty body of unknown length looks like one that was read before. It is
// rejected, since two payloads could be taken for one. The log names both
// cases.
func TestBodyEmptyOfUnknownLength(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	s := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://")) //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nX-Test-User: ada\r\nIdempotency-Key: k-1\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("status %d, want 500", resp.StatusCode)
	}
	b.wantEffects(0)
	b.wantLog("without Content-Length: 0")
}

// A body that ends too early is rejected.
func TestBodyBreaks(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	h := b.once(sqllock.NewMemory()).Handler(b.pay(http.StatusCreated))
	w := serveKey(h, httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("1"), brokenReader{})))
	if w.Code != http.StatusBadRequest {
		t.Errorf("status %d, want 400", w.Code)
	}
	b.wantEffects(0)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The files of a multipart form are removed although the handler has panicked
// and middleware around has recovered.
func TestFormFilesAfterPanic(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	m := b.once(b.locks())
	files := make(chan string, 1)
	mux := http.NewServeMux() // a Middleware needs a route
	mux.Handle("/", m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		files <- uploaded(t, r)
		panic("broken")
	})))
	s := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		mux.ServeHTTP(w, r)
	}))
	upload(t, s)
	file := httptesting.Receive(t, files, "file")
	s.Close() // waits until the server has cleaned up
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
		_ = os.Remove(file)
	}
}

// uploaded returns the name of the temporary file of r's form.
func uploaded(t *testing.T, r *http.Request) string {
	if err := r.ParseMultipartForm(1); err != nil { // a byte of its files stays in memory
		t.Error(err)
		return ""
	}
	f, err := r.MultipartForm.File["upload"][0].Open()
	if err != nil {
		t.Error(err)
		return ""
	}
	defer f.Close()
	return f.(*os.File).Name()
}

// upload posts a form with a file.
func upload(t *testing.T, s *httptest.Server) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("upload", "f")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(make([]byte, 1<<10))
	_ = form.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, &body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(user, "ada")
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Idempotency-Key", "k-1")
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusInternalServerError {
		t.Fatalf("status %d, want 500", resp.StatusCode)
	}
}
