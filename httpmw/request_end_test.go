package httpmw_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
)

// When the client leaves, the handler's context ends. The lock is released when
// the handler returns, not before.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(p.Name+"/"+method, func(t *testing.T) {
				t.Parallel()
				m, back := ended()
				inside, told, leave := make(chan struct{}), make(chan error, 1), make(chan struct{})
				s := p.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/stay" {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body) // or the server does not look
					close(inside)
					<-r.Context().Done()
					told <- context.Cause(r.Context())
					httptesting.Stay(t.Context(), leave)
				})))
				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					if r, err := fetch(ctx, s, method, s.URL+"/stay", strings.NewReader("body")); err == nil {
						t.Errorf("status %d, want a canceled request", r.StatusCode)
					}
				}()
				httptesting.Receive(t, inside, "request")
				cancel()
				httptesting.Receive(t, gone, "client")
				if cause := httptesting.Receive(t, told, "handler's context"); !errors.Is(cause, context.Canceled) {
					t.Errorf("cause %v, want Canceled", cause)
				}
				get(t, s).Want(t, http.StatusTooManyRequests)
				close(leave)
				httptesting.Receive(t, back, "lock")
				eventually(t, s, http.StatusOK)
			})
		}
	}
}
