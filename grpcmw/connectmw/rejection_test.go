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
	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// details are what a client reads in an error.
type details struct {
	reason, namespace, domain string
	retry                     time.Duration
	quota                     string
}

// read returns the details of err. It fails the test if err shows the key.
func read(t *testing.T, err error) (d details, n int) {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) {
		return details{}, 0
	}
	all := fmt.Sprint(e.Message(), e.Meta())
	for _, detail := range e.Details() {
		all += string(detail.Bytes())
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
	if strings.Contains(all, alice) {
		t.Errorf("the error holds the key: %s", all)
	}
	return d, len(e.Details())
}

func fails(err error) connectmw.KeyFunc {
	return func(context.Context, connectmw.Call) (string, error) { return "", err }
}

// Each rejection has its code, its text and its details on every road. With a RetryInfo comes Retry-After in the metadata. What the
// operators should correct is in the log once, without the key. Tests of package
// grpcmw show more of what both packages share.
func TestRejections(t *testing.T) {
	held, away, free := httptesting.Failing{Err: sqllock.ErrHeld}, httptesting.Failing{Err: sqllock.ErrUnavailable}, sqllock.NewMemory()
	retry := ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return 1500 * time.Millisecond })
	login := connect.NewError(connect.CodeUnauthenticated, errors.New("log in first"))
	quota := details{"CONCURRENCY_LIMIT_REACHED", "test", "latchkey", 1500 * time.Millisecond, "test"}
	tests := []struct {
		name   string
		locks  sqllock.Locker
		key    connectmw.KeyFunc // nil for each of the sources
		opts   []connectmw.Option
		code   connect.Code
		text   string // a part of it
		want   details
		after  string // Retry-After; "?" for 1 to 3, "" for none
		logged string // "": nothing
	}{
		{"busy", held, nil, nil, connect.CodeResourceExhausted, `The limit "test" admits one call at a time, and another call is in progress. Try again in 2 seconds.`, quota, "2", ""},
		{"conflict", held, nil, []connectmw.Option{connectmw.WithConflict(), connectmw.WithBusyText("One at a time."), connectmw.WithErrorDomain("example.com")}, connect.CodeAborted, "One at a time. Try again in 2 seconds.", details{"CALL_IN_PROGRESS", "test", "example.com", quota.retry, ""}, "2", ""},
		{"database away", away, nil, nil, connect.CodeUnavailable, "The lock service is unavailable. Try again in ", details{}, "?", ""},
		{"no header", free, connectmw.Header("Tenant"), nil, connect.CodeInvalidArgument, `ratelimit: no key in the request: header "Tenant" is missing or empty`, details{}, "", "level=WARN"},
		{"no such field", free, connectmw.Field("value.id"), nil, connect.CodeInternal, "field value is not one message", details{}, "", "level=ERROR"},
		{"a KeyFunc of httpmw", free, fails(&admission.Response{Err: fmt.Errorf("%w: no header Tenant", connectmw.ErrNoKey), Status: http.StatusBadRequest}), nil, connect.CodeInvalidArgument, "ratelimit: no key in the request", details{}, "", "no header Tenant"},
		{"the KeyFunc's own", free, fails(fmt.Errorf("for alice: %w", login)), nil, connect.CodeUnauthenticated, "log in first", details{}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
				if tt.key != nil {
					key = tt.key
				}
				var log httptesting.Logbook
				w := func(context.Context) error { t.Error("the handler ran"); return nil }
				l := ratelimit.OneAtATime(tt.locks, namespace, retry)
				c := dial(t, handlers(w, limited(l, key, append(tt.opts, connectmw.WithLogger(log.Logger()))...)), road)
				err := call(t.Context(), c, alice)
				got, n := read(t, err)
				var e *connect.Error
				if !errors.As(err, &e) || e.Code() != tt.code || !strings.Contains(e.Message(), tt.text) {
					t.Fatalf("%v, want %v: %s", err, tt.code, tt.text)
				}
				seconds := e.Meta().Get("Retry-After")
				switch {
				case tt.after == "?":
					if s, _ := strconv.Atoi(seconds); n != 1 || s < 1 || s > 3 || got.retry <= 0 || got.retry > time.Duration(s)*time.Second {
						t.Errorf("%d details %+v and Retry-After %q", n, got, seconds)
					}
				case got != tt.want || seconds != tt.after:
					t.Errorf("details %+v and Retry-After %q, want %+v and %q", got, seconds, tt.want, tt.after)
				}
				if tt.logged == "" {
					log.Want(t, tt.name, 0)
				} else {
					log.Want(t, tt.name, 1, tt.logged, "test", "procedure="+service)
				}
			})
		})
	}
}

// A plain HTTP client of the protocol Connect gets a status and Retry-After.
func TestPlainHTTP(t *testing.T) {
	for _, tt := range []struct {
		locks   sqllock.Locker
		opts    []connectmw.Option
		status  int
		code    string
		retries bool
	}{
		{httptesting.Failing{Err: sqllock.ErrHeld}, nil, http.StatusTooManyRequests, "resource_exhausted", true},
		{httptesting.Failing{Err: sqllock.ErrHeld}, []connectmw.Option{connectmw.WithConflict()}, http.StatusConflict, "aborted", true},
		{httptesting.Failing{Err: sqllock.ErrUnavailable}, nil, http.StatusServiceUnavailable, "unavailable", true},
		{sqllock.NewMemory(), nil, http.StatusOK, "", false},
	} {
		url, client := serve(t, handlers(nothing, limited(ratelimit.OneAtATime(tt.locks, namespace), connectmw.Field("value"), tt.opts...)), false)
		resp, err := client.Post(url+service+"Unary", "application/json", strings.NewReader(`"alice"`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body struct{ Code string }
		if tt.code != "" && (json.NewDecoder(resp.Body).Decode(&body) != nil || body.Code != tt.code) {
			t.Errorf("code %q, want %q", body.Code, tt.code)
		}
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != tt.status || (seconds > 0) != tt.retries {
			t.Errorf("status %d and Retry-After %d, want %d", resp.StatusCode, seconds, tt.status)
		}
	}
}
