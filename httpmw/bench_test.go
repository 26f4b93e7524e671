package httpmw_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// BenchmarkHandler measures a request to a handler that does nothing: bare, and
// behind a Middleware on Memory that admits or rejects it. There is no server.
func BenchmarkHandler(b *testing.B) {
	noop := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	b.Run("bare", func(b *testing.B) { benchmarkHandler(b, noop, http.StatusNoContent) })
	b.Run("memory", func(b *testing.B) {
		benchmarkHandler(b, limited(sqllock.NewMemory()).Handler(noop), http.StatusNoContent)
	})
	b.Run("refused", func(b *testing.B) {
		m := limited(sqllock.NewMemory())
		lock, err := m.AcquireAll(benchmarkRequest(b))
		if err != nil {
			b.Fatal(err)
		}
		defer lock.Unlock()
		benchmarkHandler(b, m.Handler(noop), http.StatusTooManyRequests)
	})
}

// unwrapped is a Middleware that passes the original ResponseWriter on. The
// difference is the cost of the ResponseWriter of Handler.
func unwrapped(next http.Handler) http.Handler {
	m := limited(sqllock.NewMemory())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock, err := m.AcquireAll(r)
		if err != nil {
			m.Reject(w, r, err)
			return
		}
		defer lock.Unlock()
		ctx, cancel := lock.Bind(r.Context())
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// The ResponseWriter costs one allocation. A request body costs seven more: six
// are for [context.AfterFunc], which ends a Read when the lock is lost.
func TestWriterAllocations(t *testing.T) {
	four, done := []string{"4"}, []byte("done")
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil {
			_, _ = r.Body.Read(nil)
		}
		w.Header()["Content-Length"] = four
		_, _ = w.Write(done)
	})
	for body, most := range map[io.ReadCloser]float64{nil: 1, endedBody{}: 8} {
		r, w := request("/", user+": ada"), &discardWriter{header: make(http.Header)}
		r.Body = body
		count := func(h http.Handler) float64 {
			return testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) })
		}
		before, after := count(unwrapped(h)), count(limited(sqllock.NewMemory()).Handler(h))
		if after > before+most {
			t.Errorf("body %T: %v allocations, want at most %v more than the %v without", body, after, most, before)
		}
	}
}

// An endedBody is a body at its end.
type endedBody struct{}

func (endedBody) Read([]byte) (int, error) { return 0, io.EOF }
func (endedBody) Close() error             { return nil }

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
	return request("/", user+": ada").WithContext(ctx)
}

// A discardWriter keeps only the status.
type discardWriter struct {
	header http.Header
	status int
}

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) WriteHeader(status int)      { w.status = status }
func (w *discardWriter) Write(p []byte) (int, error) { return len(p), nil }
