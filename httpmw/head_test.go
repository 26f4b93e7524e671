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
	_, _ = w.ResponseWriter.Write(p) // it fails over HTTP/2 once the header was sent
	return len(p), nil
}

// What is around the Middleware gets the whole body of a response to HEAD,
// since it may make the Content-Length or an ETag of it. Over HTTP/2 a bounded
// part of it comes after the handler's return.
func TestHeadBehindABuffer(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			const buffer, most = 4096, 4096 + 64<<10
			for _, size := range []int{0, 1, buffer, buffer + 1, 12_000, 64 << 10, most, most + 1, 100_000} {
				counting, before := &countingWriter{}, 0
				m := limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					for left := size; left > 0; left -= 1000 {
						part := min(1000, left)
						if n, err := w.Write(big[:part]); n != part || err != nil {
							t.Errorf("Write of %d bytes: %d, %v", part, n, err)
						}
					}
					before = counting.n
				}))
				done := make(chan struct{})
				s := p.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(done)
					counting.ResponseWriter = w
					m.ServeHTTP(counting, r)
				}))
				if _, err := fetch(t.Context(), s, http.MethodHead, s.URL, nil); err != nil {
					t.Fatal(err)
				}
				if httptesting.Receive(t, done, "end"); counting.n != size {
					t.Errorf("%d bytes of %d", counting.n, size)
				}
				want := size
				if p.Name == "HTTP/2" && size <= most {
					want = min(size, buffer)
				}
				if before != want {
					t.Errorf("%d bytes of %d before the handler returns, want %d", before, size, want)
				}
			}
		})
	}
}
