package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	os.Exit(leaktest.Check(code))
}

func TestDemonstrate(t *testing.T) {
	var out bytes.Buffer
	if err := demonstrate(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	const want = "second request, while the first runs: 429 Too Many Requests, Retry-After: \"1\"\nfirst request: 200 OK, Retry-After: \"\"\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

// locker is a Locker that fails.
type locker struct{ err error }

func (l locker) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, l.err }
func (l locker) Lock(context.Context, sqllock.Key) (*sqllock.Lock, error)    { return nil, l.err }

// Each status that says when to try again has a Retry-After in HTTP. The others
// have none, nor has any with the gateway's own error handler.
func TestRetryAfter(t *testing.T) {
	// gone ends the request whose client leaves.
	left, gone := context.WithCancel(t.Context())
	defer gone()
	wait := ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return 1500 * time.Millisecond })
	fail := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	lose := func(ctx context.Context) error {
		lock, _ := sqllock.FromContext(ctx)
		lock.Cancel(sqllock.ErrLost) // as the loss of its connection does
		<-ctx.Done()
		return ctx.Err()
	}
	tooLong := func(ctx context.Context) error {
		lock, _ := sqllock.FromContext(ctx)
		lock.Cancel(ratelimit.ErrMaxHold) // as WithMaxHold does
		<-ctx.Done()
		return ctx.Err()
	}
	leave := func(ctx context.Context) error {
		gone()
		<-ctx.Done()
		return ctx.Err()
	}
	plain := runtime.WithErrorHandler(runtime.DefaultHTTPErrorHandler)
	tests := []struct {
		name     string
		locks    sqllock.Locker
		user     string
		work     func(context.Context) error
		opts     []runtime.ServeMuxOption
		status   int
		min, max int // of Retry-After; 0: none
	}{
		{"busy", locker{sqllock.ErrHeld}, "ada", nil, nil, http.StatusTooManyRequests, 2, 2},
		{"away", locker{sqllock.ErrUnavailable}, "ada", nil, nil, http.StatusServiceUnavailable, 1, 3},
		{"lock lost", sqllock.NewMemory(), "ada", lose, nil, http.StatusConflict, 1, 3},
		{"too long", sqllock.NewMemory(), "ada", tooLong, nil, http.StatusGatewayTimeout, 0, 0},
		{"client has left", sqllock.NewMemory(), "ada", leave, nil, 499, 0, 0},
		{"bad key", sqllock.NewMemory(), strings.Repeat("a", 5000), nil, nil, http.StatusBadRequest, 0, 0},
		{"no user", sqllock.NewMemory(), "", nil, nil, http.StatusUnauthorized, 0, 0},
		{"the handler's own", sqllock.NewMemory(), "ada", fail(status.Error(codes.NotFound, "none")), nil, http.StatusNotFound, 0, 0},
		{"served", sqllock.NewMemory(), "ada", fail(nil), nil, http.StatusOK, 0, 0},
		{"without these lines", locker{sqllock.ErrHeld}, "ada", nil, []runtime.ServeMuxOption{plain}, http.StatusTooManyRequests, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gateway, stop, err := serve(t.Context(), ratelimit.OneAtATime(tt.locks, "export", wait), tt.work, tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}()
			r := httptest.NewRequest(http.MethodPost, "/latchkey.grpcgateway.v1.ExportService/Export", strings.NewReader("{}"))
			if tt.user != "" {
				r.Header.Set("Authorization", "Bearer "+tt.user)
			}
			if tt.status == 499 {
				r = r.WithContext(left)
			}
			w := httptest.NewRecorder()
			gateway.ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Errorf("status %d, want %d: %s", w.Code, tt.status, w.Body)
			}
			seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if told := err == nil; told != (tt.max > 0) || told && (seconds < tt.min || seconds > tt.max) {
				t.Errorf("Retry-After %q, want %d to %d", w.Header().Get("Retry-After"), tt.min, tt.max)
			}
			var body struct{ Message string }
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Errorf("%v in %s", err, w.Body)
			}
			if tt.max > 0 && !strings.Contains(body.Message, "Try again in") {
				t.Errorf("message %q does not say when to try again", body.Message)
			}
		})
	}
}
