package httpmw_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A client that sends a request after the whole response to the last is never
// rejected, by any instance and connection. The lock is released before the
// response is complete.
func TestReleasedBeforeTheResponse(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), 1<<16)
	tests := []shapeOver{
		{"small", 1, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }},
		{"empty", 1, func(http.ResponseWriter, *http.Request) {}},
		{"no content", 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }},
		{"small, with a length", 1, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "done")
		}},
		{"chunked", 1, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big) }},
		{"chunked, flushed", 1, func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "part")
				w.(http.Flusher).Flush()
			}
		}},
		{"small", 2, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }},
		{"big", 2, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big) }},
		{"flushed", 2, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "done")
			w.(http.Flusher).Flush()
		}},
	}
	eachStack(t, func(t *testing.T, levels stack) {
		early := unlockEarly(t, levels, big)
		for _, tt := range append(tests, shapeOver{"with a length, early", 1, early}, shapeOver{"with a length, early", 2, early}) {
			p := httptesting.Protocols[tt.major-1]
			for _, fleet := range lockertest.Instances {
				t.Run(p.Name+"/"+tt.name+"/"+fleet.Name, func(t *testing.T) {
					t.Parallel()
					a, b := fleet.New(t)
					neverRejected(t, p.Serve(t, levels.over(a).Handler(tt.h)), p.Serve(t, levels.over(b).Handler(tt.h)))
				})
			}
		}
	})
}

// A shapeOver is a way to respond over a version of HTTP.
type shapeOver struct {
	name  string
	major int
	h     http.HandlerFunc
}

// neverRejected sends requests to servers in turn, each after the whole
// response to the last.
func neverRejected(t *testing.T, servers ...*httptest.Server) {
	t.Helper()
	for i := range 200 {
		s := servers[i%len(servers)]
		if i%3 == 0 { // and another connection from time to time
			s.Client().CloseIdleConnections()
		}
		if r := get(t, s); r.StatusCode >= 400 {
			t.Fatalf("request %d: status %d", i, r.StatusCode)
		}
	}
}

// unlockEarly returns a handler that declares a length, and releases the locks
// before the last byte.
func unlockEarly(t *testing.T, levels stack, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)-1])
		_ = levels.locks(t, r.Context()).Unlock()
		_, _ = w.Write(body[len(body)-1:])
		w.(http.Flusher).Flush()
		runtime.Gosched() // to the client, if it can
	}
}

// A handler that has flushed all of its response and runs on keeps the client
// waiting for the last byte. After Unlock it goes out with the next Flush.
func TestEarlyUnlockSendsTheLastByte(t *testing.T) {
	t.Parallel()
	eachStack(t, func(t *testing.T, levels stack) {
		for _, p := range httptesting.Protocols {
			t.Run(p.Name, func(t *testing.T) {
				t.Parallel()
				testEarlyUnlock(t, levels, p)
			})
		}
	})
}

func testEarlyUnlock(t *testing.T, levels stack, p httptesting.Protocol) {
	leave := make(chan struct{})
	s := p.Serve(t, levels.over(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			return
		}
		lengthy([]byte("done"), true)(w, r)
		_ = levels.locks(t, r.Context()).Unlock()
		flush(w)
		httptesting.Stay(t.Context(), leave)
	})))
	defer close(leave)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(user, "ada")
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := make([]byte, len("done"))
	if _, err := io.ReadFull(resp.Body, body); err != nil || string(body) != "done" {
		t.Errorf("body %q, %v; want done while the handler runs", body, err)
	}
	s.Client().CloseIdleConnections() // a request on the same one would wait for the handler
	get(t, s).Want(t, http.StatusOK)  // beside it
}

// The context of a handler does not end with an early Unlock.
func TestEarlyUnlockKeepsContext(t *testing.T) {
	t.Parallel()
	s := httptesting.Serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock, _ := sqllock.FromContext(r.Context())
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		if err := r.Context().Err(); err != nil {
			t.Errorf("the request's context ended with its lock: %v", err)
		}
		_, _ = io.WriteString(w, "done")
	})))
	if r := get(t, s); r.Text != "done" {
		t.Errorf("body %q, want done", r.Text)
	}
}
