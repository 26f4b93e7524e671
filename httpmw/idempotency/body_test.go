package idempotency_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
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
// The instance of b, with do around its Middleware, is behind s. Each who is
// another one.
func (b *bank) eachSending(do func(w http.ResponseWriter, r *http.Request), test func(s *httptest.Server, who string, chunked bool)) {
	b.t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", around(do, b.once(sqllock.NewMemory()).Handler(b.pay(http.StatusCreated))))
	for _, p := range httptesting.Protocols {
		s := p.Serve(b.t, mux)
		for _, chunked := range []bool{false, true} {
			test(s, fmt.Sprintf("%s/%s/chunked=%v", b.t.Name(), p.Name, chunked), chunked)
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

// gunzip decompresses a body as many middlewares do. They leave the header
// fields of the compressed body.
func gunzip(_ http.ResponseWriter, r *http.Request) {
	if body, err := gzip.NewReader(r.Body); err == nil {
		r.Body = body
	}
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// A body that a handler around has read cannot be compared. The request has no
// effect, and the log says what to change. Two payloads are never taken for one.
// If the handler around restores or replaces the body, the handler gets that
// body, a retry gets the response, and another payload gets 422.
func TestBodyReadAround(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	read := func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }
	form := func(_ http.ResponseWriter, r *http.Request) { _ = r.FormValue("to") }
	json, plain := contentType("application/json"), [2]string{"to=bob", "to=eve"}
	for name, tt := range map[string]struct {
		consumed bool
		around   func(w http.ResponseWriter, r *http.Request)
		header   http.Header
		bodies   [2]string
	}{
		"FormValue":            {true, form, contentType(formType), plain},
		"FormValue, multipart": {true, form, contentType(multipartType), [2]string{multipartBody("bob"), multipartBody("eve")}},
		"read":                 {true, read, nil, plain},
		"read and replaced": {true, func(w http.ResponseWriter, r *http.Request) {
			read(w, r)
			r.Body = http.NoBody
		}, nil, plain},
		"decoded up to a space": {true, func(_ http.ResponseWriter, r *http.Request) { // the decoder's first read ends where the value does
			_, _ = io.ReadFull(r.Body, make([]byte, len(`{"to":"bob"}`)))
		}, json, [2]string{"{\"to\":\"bob\"}\r\n", "{\"to\":\"eve\"}\r\n"}},

		"nothing": {false, func(http.ResponseWriter, *http.Request) {}, nil, plain},
		"restored": {false, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}, nil, plain},
		"FormValue without a form": {false, form, json, [2]string{`{"to":"bob"}`, `{"to":"eve"}`}}, // ParseForm leaves JSON alone
		"restored for a form": {false, func(w http.ResponseWriter, r *http.Request) { // as another body, of another length
			form(w, r)
			r.Body = io.NopCloser(strings.NewReader("to=" + r.PostForm.Get("to")))
		}, contentType(formType), [2]string{"%74o=bob", "%74o=eve"}},
		"limited":   {false, func(w http.ResponseWriter, r *http.Request) { r.Body = http.MaxBytesReader(w, r.Body, 1000) }, nil, plain},
		"gunzipped": {false, gunzip, http.Header{"Content-Encoding": {"gzip"}}, plain},
	} {
		b.eachSending(tt.around, func(s *httptest.Server, who string, chunked bool) {
			send := func(text string, want int) httptesting.Reply {
				if tt.header.Get("Content-Encoding") != "" {
					text = gzipped(text)
				}
				r := mustAsk(t, s, demand{key: "k-1", who: name + who, header: tt.header, body: text, chunked: chunked})
				if r.StatusCode != want {
					t.Errorf("%s, %s: status %d, want %d", name, who, r.StatusCode, want)
				}
				return r
			}
			b.do("DELETE FROM ledger")
			if tt.consumed {
				for _, body := range tt.bodies {
					send(body, http.StatusInternalServerError)
				}
				b.wantEffects(0)
				return
			}
			first := send(tt.bodies[0], http.StatusCreated)
			wantReplay(t, send(tt.bodies[0], http.StatusCreated), first)
			send(tt.bodies[1], http.StatusUnprocessableEntity)
			if n := b.number("SELECT count(*) FROM ledger WHERE note = $1", strings.Replace(tt.bodies[0], "%74", "t", 1)); n != 1 {
				t.Errorf("%s, %s: %d effects of the body, want 1", name, who, n)
			}
		})
	}
	b.wantLog("put the middleware outside")
}

// An empty body of unknown length looks like one that was read before. It is
// rejected, since two payloads could be taken for one. The log names both
// cases. A body that ends too early is rejected, too.
func TestBodyOfUnknownLength(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	h := b.once(sqllock.NewMemory()).Handler(b.pay(http.StatusCreated))
	for _, tt := range []struct {
		body io.Reader
		want int
	}{
		{io.MultiReader(), http.StatusInternalServerError},
		{io.MultiReader(strings.NewReader("1"), brokenReader{}), http.StatusBadRequest},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", tt.body)
		r.ContentLength = -1
		if w := serveKey(h, r); w.Code != tt.want {
			t.Errorf("status %d, want %d", w.Code, tt.want)
		}
	}
	b.wantEffects(0)
	b.wantLog("without Content-Length: 0")
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
