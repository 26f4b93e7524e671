package httpmw_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// BenchmarkHandler is a request through a handler that does nothing: bare, and
// behind a Middleware on Memory that admits or refuses it. No server is in it.
func BenchmarkHandler(b *testing.B) {
	noop := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	b.Run("bare", func(b *testing.B) { benchmarkHandler(b, noop, http.StatusNoContent) })
	b.Run("memory", func(b *testing.B) {
		benchmarkHandler(b, limited(sqllock.NewMemory()).Handler(noop), http.StatusNoContent)
	})
	b.Run("refused", func(b *testing.B) {
		m := limited(sqllock.NewMemory())
		lock, err := m.Acquire(benchmarkRequest(b))
		if err != nil {
			b.Fatal(err)
		}
		defer lock.Unlock()
		benchmarkHandler(b, m.Handler(noop), http.StatusTooManyRequests)
	})
}

func benchmarkHandler(b *testing.B, h http.Handler, want int) {
	r, w := benchmarkRequest(b), &discardWriter{header: make(http.Header)}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
	if w.status != want {
		b.Fatalf("status %d, want %d", w.status, want)
	}
}

// benchmarkRequest has a context that can end, as in a server.
func benchmarkRequest(b *testing.B) *http.Request {
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set(user, "ada")
	return r
}

// A discardWriter keeps the status alone.
type discardWriter struct {
	header http.Header
	status int
}

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) WriteHeader(status int)      { w.status = status }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
