package httpmw_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// optional returns which optional interfaces w has: Flusher, Hijacker,
// ReaderFrom, Pusher and CloseNotifier.
func optional(w http.ResponseWriter) (has [5]bool) {
	_, has[0] = w.(http.Flusher)
	_, has[1] = w.(http.Hijacker)
	_, has[2] = w.(io.ReaderFrom)
	_, has[3] = w.(http.Pusher)
	//lint:ignore SA1019 handlers still ask for it
	_, has[4] = w.(http.CloseNotifier)
	return has
}

// The handler's ResponseWriter has the optional interfaces of the server's. If
// middleware around hides them, they work by Unwrap, or fail.
func TestOptionalInterfaces(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		for _, around := range []string{"server", "unwrapper", "nothing"} {
			t.Run(p.Name+"/"+around, func(t *testing.T) {
				t.Parallel()
				m := limited(sqllock.NewMemory())
				s := p.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					given, supported := w, around != "nothing"
					switch around {
					case "unwrapper":
						given = unwrapper{w}
					case "nothing":
						given = struct{ http.ResponseWriter }{w}
					}
					m.Handler(http.HandlerFunc(func(inner http.ResponseWriter, _ *http.Request) {
						if got, want := optional(inner), optional(w); got != want {
							t.Errorf("inside %v, outside %v", got, want)
						}
						controller := http.NewResponseController(inner)
						if err := controller.EnableFullDuplex(); (err == nil) != supported {
							t.Errorf("EnableFullDuplex: %v", err)
						}
						if err := controller.Flush(); (err == nil) != supported {
							t.Errorf("Flush: %v", err)
						}
						if pusher, ok := inner.(http.Pusher); ok && pusher.Push("/", nil) == nil {
							t.Error("a client that rejects it got a push")
						}
						if n, err := io.Copy(inner, strings.NewReader("done")); n != 4 || err != nil {
							t.Errorf("copied %d, %v", n, err)
						}
					})).ServeHTTP(given, r)
				}))
				if r := get(t, s); r.Text != "done" {
					t.Errorf("got %q", r.Text)
				}
			})
		}
	}
}

// CloseNotify works also where the ResponseWriter below has none.
func TestCloseNotify(t *testing.T) {
	t.Parallel()
	for _, around := range []func(http.ResponseWriter) http.ResponseWriter{
		func(w http.ResponseWriter) http.ResponseWriter { return w },
		func(w http.ResponseWriter) http.ResponseWriter { return unwrapper{w} },
	} {
		left := make(chan bool, 1)
		h := limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			flush(w)
			//lint:ignore SA1019 handlers still ask for it
			left <- <-w.(http.CloseNotifier).CloseNotify()
		}))
		s := httptesting.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(around(w), r) }))
		_ = open(t, s, http.MethodGet, nil).Body.Close()
		httptesting.Receive(t, left, "value of CloseNotify")
	}
}

// A sourceWriter has a ReadFrom that keeps its source.
type sourceWriter struct {
	http.ResponseWriter
	sources []io.Reader
}

func (w *sourceWriter) ReadFrom(r io.Reader) (int64, error) {
	w.sources = append(w.sources, r)
	return io.Copy(io.Discard, r)
}

// The server gets a file in the form in which the kernel copies it. Package net
// recognizes one *io.LimitedReader around it.
func TestServerGetsTheFileItself(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	handlers := map[string]http.HandlerFunc{
		"ServeFile": func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) },
		"Copy": func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(name)
			if err != nil {
				panic(err)
			}
			defer f.Close()
			w.Header().Set("Content-Length", strconv.Itoa(1<<20))
			if n, err := io.Copy(w, f); n != 1<<20 || err != nil {
				t.Errorf("copied %d, %v", n, err)
			}
		},
	}
	for how, h := range handlers {
		w := &sourceWriter{ResponseWriter: httptest.NewRecorder()}
		limited(sqllock.NewMemory()).Handler(h).ServeHTTP(w, request("/", user+": ada"))
		if len(w.sources) != 1 {
			t.Fatalf("%s: ReadFrom was called %d times, want 1", how, len(w.sources))
		}
		limit, ok := w.sources[0].(*io.LimitedReader)
		if !ok {
			t.Fatalf("%s: ReadFrom got a %T", how, w.sources[0])
		}
		if _, nested := limit.R.(*io.LimitedReader); nested {
			t.Errorf("%s: one limit is around another", how)
		}
		if _, file := limit.R.(interface{ Fd() uintptr }); !file {
			t.Errorf("%s: the limit is around a %T", how, limit.R)
		}
	}
}
