package grpcmw_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// retryPolicy makes a client try up to four times. Its own backoff is far
// longer than the test waits, so only the server's pushback lets the client try
// again in time.
func retryPolicy(code string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"methodConfig": [{
		"name": [{"service": "grpc.testing.TestService"}],
		"retryPolicy": {
			"maxAttempts": 4,
			"initialBackoff": "3600s", "maxBackoff": "3600s", "backoffMultiplier": 1,
			"retryableStatusCodes": [%q]
		}
	}]}`, code))
}

// A client must not obey a pushback up to its deadline.
func TestPushbackBeforeTheDeadline(t *testing.T) {
	for _, left := range []time.Duration{time.Second, time.Second + 1} {
		synctest.Test(t, func(t *testing.T) {
			intercept := grpcmw.UnaryServerInterceptor(ratelimit.OneAtATime(sqllock.NewMemory(), "export"),
				grpcmw.FromContext(authenticated), grpcmw.WithPushback(time.Second))
			transport := &recorder{}
			ctx, cancel := context.WithTimeout(login("alice"), left)
			defer cancel()
			second := func(context.Context, any) (any, error) {
				return nil, call(grpc.NewContextWithServerTransportStream(ctx, transport), intercept, "/", nil, done)
			}
			if err := call(login("alice"), intercept, "/", nil, second); status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
			if some := transport.trailer.Len() > 0; some != (left > time.Second) {
				t.Errorf("%v before the deadline a pushback of a second: %t", left, some)
			}
		})
	}
}

// attempts counts the attempts of calls, and calls second before the second.
type attempts struct {
	n      atomic.Int64
	second func()
	header bool // set a header, as no interceptor before ours should
}

func (a *attempts) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			a.count(ctx)
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			a.count(ss.Context())
			return next(srv, ss)
		}),
	}
}

func (a *attempts) count(ctx context.Context) {
	if a.n.Add(1) == 2 {
		a.second()
	}
	if a.header {
		_ = grpc.SetHeader(ctx, metadata.Pairs("seen", "yes"))
	}
}

// With gRPC's own retries, by the policy of the client's service config, a
// rejected call succeeds.
func TestClientRetries(t *testing.T) {
	tests := []struct {
		name     string
		code     string
		options  []grpcmw.Option
		header   bool
		attempts int64
		want     codes.Code
	}{
		{"busy", "RESOURCE_EXHAUSTED", nil, false, 2, codes.OK},
		{"conflict", "ABORTED", []grpcmw.Option{grpcmw.WithConflict()}, false, 2, codes.OK},
		{"a code that is not in the policy", "UNAVAILABLE", nil, false, 1, codes.ResourceExhausted},
		{"after a header", "RESOURCE_EXHAUSTED", nil, true, 1, codes.ResourceExhausted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, r road) {
				locks := sqllock.NewMemory()
				a := &attempts{second: hold(t, locks, "alice"), header: tt.header}
				levels := r.over(ratelimit.OneAtATime(locks, namespace))
				opts := limited(levels, append(tt.options, grpcmw.WithPushback(time.Millisecond))...)
				_, address := serve(t, &service{work: nothing}, append(a.options(), opts...)...)
				client := dial(t, address, retryPolicy(tt.code))

				ctx, cancel := context.WithTimeout(t.Context(), httptesting.Patience)
				defer cancel()
				if err := r.call(ctx, client, "alice"); status.Code(err) != tt.want {
					t.Errorf("the call ended with %v, want %v", err, tt.want)
				}
				if got := a.n.Load(); got != tt.attempts {
					t.Errorf("%d attempts, want %d", got, tt.attempts)
				}
			})
		})
	}
}

// With a pushback beyond its deadline a client would wait for the deadline, and
// get DEADLINE_EXCEEDED.
func TestPushbackInTime(t *testing.T) {
	const told = "as RetryInfo says"
	later := ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return time.Hour })
	tests := []struct {
		name     string
		locks    sqllock.Locker
		opts     []grpcmw.Option
		deadline time.Duration // 0: none
		pushback string        // in milliseconds
	}{
		{"no deadline", httptesting.Failing{Err: sqllock.ErrHeld}, nil, 0, told},
		{"an early deadline", httptesting.Failing{Err: sqllock.ErrHeld}, nil, 10 * time.Minute, ""},
		{"pushback set", httptesting.Failing{Err: sqllock.ErrHeld}, []grpcmw.Option{grpcmw.WithPushback(time.Second)}, 10 * time.Minute, "1000"},
		{"pushback rounded up", httptesting.Failing{Err: sqllock.ErrHeld}, []grpcmw.Option{grpcmw.WithPushback(time.Microsecond)}, 0, "1"},
		{"away", httptesting.Failing{Err: sqllock.ErrUnavailable}, nil, 10 * time.Minute, told},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, r road) {
				client := start(t, &service{}, limited(r.over(ratelimit.OneAtATime(tt.locks, namespace, later)), tt.opts...)...)
				ctx := t.Context()
				if tt.deadline > 0 {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				var trailer metadata.MD
				err := r.call(ctx, client, "alice", grpc.Trailer(&trailer))
				retry, want := retryDelay(t, status.Convert(err)), tt.pushback
				if want == told {
					want = strconv.FormatInt(retry.Milliseconds(), 10)
				}
				if got := strings.Join(trailer.Get("grpc-retry-pushback-ms"), " "); got != want {
					t.Errorf("pushback %q, want %q", got, want)
				}
			})
		})
	}
}

// While locks cannot be acquired, clients return at different moments.
func TestPushbackIsSpread(t *testing.T) {
	told := map[time.Duration]bool{}
	levels := one(ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrUnavailable}, namespace), constant("alice"))
	for range 50 {
		told[retryDelay(t, status.Convert(calls["unary"](t.Context(), levels, nothing)))] = true
	}
	if len(told) < 10 { // of 50, from 2001
		t.Errorf("50 clients were told %d different times to wait, want many", len(told))
	}
}
