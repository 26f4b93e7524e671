package simulation

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A handler that writes nothing, and one of whose locks has expired before any
// context has noticed that, gets 503. The lock that the context looks at is good.
func TestResponseAfterALeaseHasPassed(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		id, long := httpmw.Header("X-User"), st.another(t, sqllock.WithLease(time.Hour))
		levels := []httpmw.Level{
			{Limiter: ratelimit.OneAtATime(s, "user"), Key: id},
			{Limiter: ratelimit.OneAtATime(long, "tenant"), Key: id},
		}
		h := httpmw.NewStack(levels).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			st.link.asleep.Add(int64(trust))
			wantErr(t, "the context in the handler", r.Context().Err(), nil)
		}))
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("X-User", "ada")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d, want 503", w.Code)
		}
	})
}
