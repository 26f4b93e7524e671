package httpmw_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A handler that streams without an end answers HEAD with its first Flush, as
// without the Middleware. It ends when the client leaves.
func TestHeadOfAStream(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			m, back := ended()
			s := p.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				flush(w)
				<-r.Context().Done()
			})))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			req, err := http.NewRequestWithContext(ctx, http.MethodHead, s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(user, "ada")
			answered := make(chan error, 1)
			go func() {
				resp, err := s.Client().Do(req)
				if err == nil {
					err = resp.Body.Close()
				}
				answered <- err
			}()
			if err := httptesting.Receive(t, answered, "response to HEAD"); err != nil {
				t.Error(err)
			}
			leave()
			s.Client().CloseIdleConnections()
			httptesting.Receive(t, back, "lock")
		})
	}
}

// A countingWriter stands for a buffer, a compressor or a logger around the
// Middleware.
type countingWriter struct {
	http.ResponseWriter
	n int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += len(p)
	return w.ResponseWriter.Write(p)
}

// What is around the Middleware gets the whole body of a response to HEAD,
// since it may make the Content-Length or an ETag of it.
func TestHeadBehindABuffer(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{0, 1, 4096, 4097, 12_000, 64 << 10, 100_000} {
				m := limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					for left := size; left > 0; left -= 1000 {
						_, _ = w.Write(big[:min(1000, left)])
					}
				}))
				counts := make(chan int, 1)
				s := p.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					counting := &countingWriter{ResponseWriter: w}
					m.ServeHTTP(counting, r)
					counts <- counting.n
				}))
				if _, err := fetch(t.Context(), s, http.MethodHead, s.URL, nil); err != nil {
					t.Fatal(err)
				}
				if n := httptesting.Receive(t, counts, "count"); n != size {
					t.Errorf("%d bytes of %d", n, size)
				}
			}
		})
	}
}
