package connectmw_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// retryIn makes the limiter's Retry-After known.
func retryIn(d time.Duration) ratelimit.Option {
	return ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return d })
}

// details are what a client reads in an error.
type details struct {
	reason, namespace, domain string
	retry                     time.Duration
	quota                     string
}

// read returns the details of err, and how many it has.
func read(t *testing.T, err error) (d details, n int) {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) {
		return details{}, 0
	}
	for _, detail := range e.Details() {
		value, err := detail.Value()
		if err != nil {
			t.Error(err)
		}
		switch v := value.(type) {
		case *errdetails.ErrorInfo:
			d.reason, d.namespace, d.domain = v.GetReason(), v.GetMetadata()["namespace"], v.GetDomain()
		case *errdetails.RetryInfo:
			d.retry = v.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			d.quota = v.GetViolations()[0].GetSubject()
		}
	}
	return d, len(e.Details())
}

// wantNoKey fails the test if err shows the key to a client.
func wantNoKey(t *testing.T, err error) {
	t.Helper()
	var e *connect.Error
	if errors.As(err, &e) {
		all := fmt.Sprint(e.Message(), e.Meta())
		for _, d := range e.Details() {
			all += string(d.Bytes())
		}
		if strings.Contains(all, alice) {
			t.Errorf("the error holds the key: %s", all)
		}
	}
}

// Each rejection has its code and its details for every kind of call, and the
// usual ones on every road. Retry-After is in the metadata if RetryInfo is in the details.
func TestRejections(t *testing.T) {
	const retry = 1500 * time.Millisecond
	held, away := httptesting.Failing{Err: sqllock.ErrHeld}, httptesting.Failing{Err: sqllock.ErrUnavailable}
	failing := func(err error) connectmw.KeyFunc {
		return func(context.Context, connectmw.Call) (string, error) { return "", err }
	}
	unauthenticated := connect.NewError(connect.CodeUnauthenticated, errors.New("log in first"))
	tests := []struct {
		name  string
		locks sqllock.Locker
		key   connectmw.KeyFunc // nil for each of the sources
		opts  []connectmw.Option
		code  connect.Code
		text  string // a part of it
		want  details
		after string // Retry-After; "?" for 1 to 3, "" for none
	}{
		{"busy", held, nil, nil, connect.CodeResourceExhausted, `The limit "test" admits one call at a time, and another call is in progress. Try again in 2 seconds.`, details{"CONCURRENCY_LIMIT_REACHED", "test", "latchkey", retry, "test"}, "2"},
		{"busy, in words", held, nil, []connectmw.Option{connectmw.WithBusyText("One export at a time."), connectmw.WithErrorDomain("example.com")}, connect.CodeResourceExhausted, "One export at a time. Try again in 2 seconds.", details{"CONCURRENCY_LIMIT_REACHED", "test", "example.com", retry, "test"}, "2"},
		{"conflict", held, nil, []connectmw.Option{connectmw.WithConflict()}, connect.CodeAborted, "in progress", details{"CALL_IN_PROGRESS", "test", "latchkey", retry, ""}, "2"},
		{"database away", away, nil, nil, connect.CodeUnavailable, "The lock service is unavailable. Try again in ", details{}, "?"},
		{"no room", httptesting.Failing{Err: sqllock.ErrCapacity}, nil, nil, connect.CodeUnavailable, "unavailable", details{}, "?"},
		{"no header", held, connectmw.Header("Tenant"), nil, connect.CodeInvalidArgument, `connectmw: no key in the call: header "Tenant" is missing or empty`, details{}, ""},
		{"no field", held, connectmw.Field("value.id"), nil, connect.CodeInvalidArgument, "field value is not one message", details{}, ""},
		{"bad key", held, failing(fmt.Errorf("the id of alice: %w", ratelimit.ErrBadID)), nil, connect.CodeInvalidArgument, "connectmw: bad key", details{}, ""},
		{"long key", held, func(context.Context, connectmw.Call) (string, error) { return strings.Repeat("a", 5000), nil }, nil, connect.CodeInvalidArgument, "ratelimit: ", details{}, ""},
		{"no key", held, failing(connectmw.ErrNoKey), nil, connect.CodeInvalidArgument, "connectmw: no key in the call", details{}, ""},
		{"empty key", held, func(context.Context, connectmw.Call) (string, error) { return "", nil }, nil, connect.CodeInvalidArgument, "connectmw: no key in the call", details{}, ""},
		{"directory away", held, failing(fmt.Errorf("asking for alice: %w", sqllock.ErrUnavailable)), nil, connect.CodeUnavailable, "unavailable", details{}, "?"},
		{"a fault", held, failing(errors.New("alice is unknown")), nil, connect.CodeInternal, "The server could not find out whom the call is for.", details{}, ""},
		{"the KeyFunc's own", held, failing(fmt.Errorf("for alice: %w", unauthenticated)), nil, connect.CodeUnauthenticated, "log in first", details{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run := eachKind
			if tt.name == "busy" || tt.name == "database away" {
				run = each
			}
			run(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
				if tt.key != nil {
					key = tt.key
				}
				w := func(context.Context) error { t.Error("the handler ran"); return nil }
				c := dial(t, handlers(w, limited(ratelimit.OneAtATime(tt.locks, namespace, retryIn(retry)), key, tt.opts...)), road)
				err := call(t.Context(), c, alice)
				wantNoKey(t, err)
				var e *connect.Error
				if !errors.As(err, &e) || e.Code() != tt.code || !strings.Contains(e.Message(), tt.text) {
					t.Fatalf("%v, want %v: %s", err, tt.code, tt.text)
				}
				got, n := read(t, err)
				seconds := e.Meta().Get("Retry-After")
				switch {
				case tt.after == "?":
					if s, _ := strconv.Atoi(seconds); n != 1 || s < 1 || s > 3 || got.retry <= 0 || got.retry > time.Duration(s)*time.Second {
						t.Errorf("%d details %+v and Retry-After %q", n, got, seconds)
					}
				case got != tt.want || seconds != tt.after || n != len(e.Details()):
					t.Errorf("details %+v and Retry-After %q, want %+v and %q", got, seconds, tt.want, tt.after)
				}
			})
		})
	}
}

// A plain HTTP client of the protocol Connect gets a status and Retry-After.
func TestPlainHTTP(t *testing.T) {
	for _, tt := range []struct {
		name   string
		locks  sqllock.Locker
		opts   []connectmw.Option
		header string
		status int
		code   string
		after  bool
	}{
		{"busy", httptesting.Failing{Err: sqllock.ErrHeld}, nil, "User", http.StatusTooManyRequests, "resource_exhausted", true},
		{"conflict", httptesting.Failing{Err: sqllock.ErrHeld}, []connectmw.Option{connectmw.WithConflict()}, "User", http.StatusConflict, "aborted", true},
		{"away", httptesting.Failing{Err: sqllock.ErrUnavailable}, nil, "User", http.StatusServiceUnavailable, "unavailable", true},
		{"no key", httptesting.Failing{Err: sqllock.ErrHeld}, nil, "Other", http.StatusBadRequest, "invalid_argument", false},
		{"served", sqllock.NewMemory(), nil, "User", http.StatusOK, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, client := serve(t, handlers(nothing, limited(ratelimit.OneAtATime(tt.locks, namespace), connectmw.Header("User"), tt.opts...)), false)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+service+"Unary", strings.NewReader(`"alice"`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set(tt.header, alice)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			if resp.StatusCode != tt.status || (err == nil) != tt.after || tt.after && seconds < 1 {
				t.Errorf("status %d and Retry-After %q, want %d", resp.StatusCode, resp.Header.Get("Retry-After"), tt.status)
			}
			var body struct{ Code string }
			if tt.code != "" && (json.NewDecoder(resp.Body).Decode(&body) != nil || body.Code != tt.code) {
				t.Errorf("code %q, want %q", body.Code, tt.code)
			}
		})
	}
}
