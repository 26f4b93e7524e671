package httpmw_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A client that waits for the whole answer before it asks again is never
// refused, whichever instance and connection it comes to: the lock is back
// before the answer is complete.
func TestBackBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), 1<<16)
	tests := []struct {
		name  string
		major int
		h     http.HandlerFunc
	}{
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
		{"with a length, early", 1, giveBackEarly(big)},
		{"with a length, early", 2, giveBackEarly(big)},
	}
	for _, tt := range tests {
		p := protocols[tt.major-1]
		for _, fleet := range lockertest.Instances {
			t.Run(p.name+"/"+tt.name+"/"+fleet.Name, func(t *testing.T) {
				t.Parallel()
				a, b := fleet.New(t)
				neverRefused(t, p.serve(t, limited(a).Handler(tt.h)), p.serve(t, limited(b).Handler(tt.h)))
			})
		}
	}
}

// neverRefused sends requests to servers in turn, each after the whole answer to
// the last.
func neverRefused(t *testing.T, servers ...*httptest.Server) {
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

// giveBackEarly is how a handler that sends a length gives the lock back before
// the client can have all: before the last byte.
func giveBackEarly(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)-1])
		lock, _ := sqllock.FromContext(r.Context())
		_ = lock.Unlock()
		_, _ = w.Write(body[len(body)-1:])
		w.(http.Flusher).Flush()
		runtime.Gosched() // to the client, if it can
	}
}

// The trap that giving back early is for: the answer is complete, the handler is
// not.
func TestContentLengthCompletesTheAnswer(t *testing.T) {
	t.Parallel()
	leave := make(chan struct{})
	m, back := ended(sqllock.NewMemory())
	s := serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		_, _ = io.WriteString(w, "done")
		w.(http.Flusher).Flush()
		stay(t.Context(), leave)
	})))
	if r := get(t, s); r.text != "done" {
		t.Errorf("body %q, want done", r.text)
	}
	s.Client().CloseIdleConnections() // a request on the same one would wait for the handler
	get(t, s).want(t, http.StatusTooManyRequests)
	close(leave)
	receive(t, back, "lock")
	eventually(t, s, http.StatusOK)
}

// A handler that has given the lock back early goes on with a living context.
func TestEarlyUnlockKeepsContext(t *testing.T) {
	t.Parallel()
	s := serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock, _ := sqllock.FromContext(r.Context())
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
		if err := r.Context().Err(); err != nil {
			t.Errorf("the request's context ended with its lock: %v", err)
		}
		_, _ = io.WriteString(w, "done")
	})))
	if r := get(t, s); r.text != "done" {
		t.Errorf("body %q, want done", r.text)
	}
}
