package idempotency_test

import (
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The error of the principal's KeyFunc decides on the response as in an
// httpmw.Middleware, before any query.
func TestKeyFuncFails(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", "host=/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	tests := []struct {
		name   string
		err    error
		want   int
		logged string // "" for nothing
	}{
		{"no principal", httpmw.ErrNoKey, http.StatusBadRequest, "idempotency: a request has no principal"},
		{"bad principal", ratelimit.ErrBadID, http.StatusBadRequest, ""},
		{"away", sqllock.ErrUnavailable, http.StatusServiceUnavailable, "idempotency: failed a request"},
		{"its own", errors.New("directory: connection refused"), http.StatusInternalServerError, "directory: connection refused"},
		{"bypass", httpmw.ErrBypass, http.StatusTeapot, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log httptesting.Logbook
			i := idempotency.New(db, ratelimit.OneAtATime(sqllock.NewMemory(), "payments"),
				func(*http.Request) (string, error) { return "", tt.err }, idempotency.WithLogger(log.Logger()))
			w := serveKey(i.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, ok := idempotency.Tx(r.Context()); ok {
					t.Error("a request that bypasses the Middleware has a transaction")
				}
				w.WriteHeader(http.StatusTeapot)
			})), httptest.NewRequest(http.MethodPost, "/payments", nil))
			if w.Code != tt.want {
				t.Errorf("status %d, want %d", w.Code, tt.want)
			}
			lines := 0
			if tt.logged != "" {
				lines = 1
			}
			log.Want(t, tt.name, lines, tt.logged)
		})
	}
}

// A route with the Middleware twice is always 409, and the log says so.
func TestTwice(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	var log httptesting.Logbook
	locks := sqllock.NewMemory()
	inner := b.once(locks, idempotency.WithLogger(log.Logger())).Handler(b.pay(http.StatusCreated))
	h := httptesting.Serve(t, around(func(_ http.ResponseWriter, r *http.Request) { r.Pattern = "POST /" }, b.once(locks, idempotency.WithLogger(log.Logger())).Handler(inner)))
	for _, key := range []string{"k-1", "k-2"} {
		mustAsk(t, h, demand{key: key}).Want(t, http.StatusConflict)
	}
	log.Want(t, "two requests", 1, "level=ERROR", "two places of one limit", "namespace=pay", `route="POST /"`)
}
