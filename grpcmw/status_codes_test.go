package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// What one level does with a call decides on its status, also behind and in
// front of other levels. The client never reads the key, and the limiter counts
// the call unless it bypasses the limit.
func TestStatusCodes(t *testing.T) {
	const fault = "The server failed to process the request. Its log says why. If this happens again, contact the people who run it."
	var (
		quota    = []string{"ErrorInfo", "RetryInfo", "QuotaFailure"}
		conflict = []string{"ErrorInfo", "RetryInfo"}
		retry    = []string{"RetryInfo"}
		inUse    = grpcmw.WithConflict()
		open     = ratelimit.WithFailOpen()
		dry      = ratelimit.WithDryRun()
		login    = status.Error(codes.Unauthenticated, "log in first")
		unknown  = ratelimit.WithClasses(func(context.Context) string { return secret }, ratelimit.Class{Name: "interactive"})
	)
	const policyLog = "the policy of a limit failed"
	tests := []struct {
		name    string
		locks   error          // of the Locker; nil: it is free
		key     grpcmw.KeyFunc // nil: it finds secret
		option  grpcmw.Option
		policy  ratelimit.Option
		want    codes.Code
		text    string   // "": any
		details []string // kinds, in order
		logged  string   // "": nothing
	}{
		{name: "free"},
		{name: "busy", locks: sqllock.ErrHeld, want: codes.ResourceExhausted, details: quota},
		{name: "busy, conflict", locks: sqllock.ErrHeld, option: inUse, want: codes.Aborted, details: conflict},
		{name: "busy after a wait", locks: sqllock.ErrHeld, policy: ratelimit.WithWait(time.Millisecond, 9), want: codes.ResourceExhausted, details: quota},
		{name: "busy, dry run", locks: sqllock.ErrHeld, policy: dry},
		{name: "busy, fail open", locks: sqllock.ErrHeld, policy: open, want: codes.ResourceExhausted, details: quota},

		{name: "away", locks: sqllock.ErrUnavailable, option: inUse, want: codes.Unavailable, details: retry},
		{name: "away, fail open", locks: sqllock.ErrUnavailable, policy: open},
		{name: "away, dry run", locks: sqllock.ErrUnavailable, policy: dry},
		{name: "capacity", locks: sqllock.ErrCapacity, policy: open, want: codes.Unavailable, details: retry},
		{name: "not exclusive", locks: sqllock.ErrNotExclusive, want: codes.Unavailable, details: retry},
		{name: "config", locks: sqllock.ErrConfig, policy: open, want: codes.Unavailable, details: retry},
		{name: "closed", locks: sqllock.ErrClosed, want: codes.Unavailable, details: retry},
		{name: "unknown", locks: errors.New("host " + secret), want: codes.Unavailable, details: retry},

		{name: "long key", key: constant(strings.Repeat(secret, 129)), want: codes.InvalidArgument, text: "ratelimit: bad id: it is longer than 1024 bytes"},
		{name: "long key, dry run", key: constant(strings.Repeat(secret, 129)), policy: dry},
		{name: "key with a NUL", key: constant(secret + "\x00"), want: codes.InvalidArgument},
		{name: "no key", key: fails(fmt.Errorf("nobody called bob: %w", grpcmw.ErrNoKey)), want: codes.InvalidArgument, text: "ratelimit: no key in the request", logged: `level=WARN msg="grpcmw: a call has no key: is the interceptor after the authentication?`},
		{name: "no key, dry run", key: constant(""), policy: dry, logged: "level=WARN"},
		{name: "field not set", key: grpcmw.Join(constant("a"), grpcmw.Field("response_status.code")), want: codes.InvalidArgument, text: `ratelimit: no key in the request: field "response_status.code" is not set or empty`, logged: "level=WARN"},
		{name: "no such field", key: grpcmw.Field("response_status.user"), want: codes.Internal, text: `ratelimit: no key at "response_status.user" in grpc.testing.EchoStatus: the message has no field user`, logged: "level=ERROR"},
		{name: "bad id", key: fails(fmt.Errorf("%s: %w", secret, grpcmw.ErrBadID)), want: codes.InvalidArgument, text: "ratelimit: bad id"},
		{name: "bypass", locks: sqllock.ErrHeld, key: fails(fmt.Errorf("an admin: %w", grpcmw.ErrBypass))},
		{name: "its own error", key: fails(errors.New("directory: refused")), want: codes.Internal, text: fault, logged: "directory: refused"},
		{name: "directory away", key: fails(fmt.Errorf("looking up %s: %w", secret, sqllock.ErrUnavailable)), want: codes.Unavailable, details: retry},
		{name: "a status", key: fails(fmt.Errorf("looking up %s: %w", secret, login)), want: codes.Unauthenticated, text: "log in first"},
		{name: "a status that says OK", key: fails(statusError{status.New(codes.OK, "fine")}), want: codes.Internal, text: fault, logged: "a KeyFunc failed"},
		{name: "a status to come back from", key: fails(status.Error(codes.Unavailable, "no directory")), want: codes.Unavailable, text: "no directory"},
		{name: "a deadline that is not the call's", key: fails(context.DeadlineExceeded), want: codes.Internal, text: fault, logged: "deadline exceeded"},
		{name: "a message that is there", key: fails(fmt.Errorf("first: %w", grpcmw.ErrNeedMessage)), want: codes.Internal, text: fault, logged: "a KeyFunc failed"},

		{name: "policy without a limit", policy: limitOf(0), want: codes.Internal, text: fault, logged: policyLog},
		{name: "policy of an unknown class", policy: unknown, want: codes.Internal, text: fault, logged: policyLog},
	}
	for _, r := range roads {
		for _, tt := range tests {
			t.Run(r.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				var log httptesting.Logbook
				var locks sqllock.Locker = sqllock.NewMemory()
				if tt.locks != nil {
					locks = httptesting.Failing{Err: fmt.Errorf("%w: for a reason", tt.locks)}
				}
				r := r // of this test alone
				if tt.key != nil {
					r.key = tt.key
				}
				opts := []grpcmw.Option{grpcmw.WithLogger(log.Logger()), grpcmw.WithPushback(5 * time.Second)}
				if tt.option != nil {
					opts = append(opts, tt.option)
				}
				var policy []ratelimit.Option
				if tt.policy != nil {
					policy = append(policy, tt.policy)
				}
				limit := ratelimit.AtMost(1, locks, namespace, policy...)
				levels := r.over(limit)
				ran := false
				s := &service{work: func(ctx context.Context) error { ran = true; return ctx.Err() }}
				client := start(t, s, limited(levels, opts...)...)

				var header, trailer metadata.MD
				err := r.call(t.Context(), client, secret, grpc.Header(&header), grpc.Trailer(&trailer))
				got := status.Convert(err)
				if got.Code() != tt.want || tt.text != "" && got.Message() != tt.text || !slices.Equal(detailKinds(got), tt.details) {
					t.Errorf("%v with %v, want %v %q with %v", err, detailKinds(got), tt.want, tt.text, tt.details)
				}
				if ran != (tt.want == codes.OK) {
					t.Errorf("the handler's work ran: %v", ran)
				}
				if told := fmt.Sprint(got.Message(), prototext.Format(got.Proto()), header, trailer); strings.Contains(told, secret) {
					t.Errorf("the client is told the key: %s", told)
				}
				var pushback []string
				switch {
				case slices.Equal(tt.details, retry): // whatever WithPushback says
					pushback = []string{strconv.FormatInt(retryDelay(t, got).Milliseconds(), 10)}
				case tt.details != nil:
					pushback = []string{"5000"}
				}
				if got := trailer["grpc-retry-pushback-ms"]; !slices.Equal(got, pushback) || header["grpc-retry-pushback-ms"] != nil {
					t.Errorf("pushback %v in the trailer, want %v; header %v", got, pushback, header)
				}
				if tt.logged == "" {
					log.Want(t, tt.name, 0)
				} else {
					log.Want(t, tt.name, 1, tt.logged, "test", "method=/grpc.testing.TestService/")
				}
				counted := limit.Stats().Requests
				delete(counted, ratelimit.Released)
				if n := slices.Max(slices.Collect(maps.Values(counted))); (n == 1) == (tt.name == "bypass") {
					t.Errorf("the limiter has counted %v", counted)
				}
				wantPlacesFree(t, levels)
			})
		}
	}
}

// A statusError is an error that has a status.
type statusError struct{ status *status.Status }

func (statusError) Error() string                { return "no such user" }
func (e statusError) GRPCStatus() *status.Status { return e.status }

// retryDelay returns the time in the RetryInfo of s.
func retryDelay(t *testing.T, s *status.Status) time.Duration {
	t.Helper()
	d := detail[*errdetails.RetryInfo](s)
	if d == nil {
		t.Errorf("status %v has no RetryInfo", s)
	}
	return d.GetRetryDelay().AsDuration()
}

// detailKinds returns the kinds of the details of a status.
func detailKinds(s *status.Status) []string {
	var names []string
	for _, detail := range s.Details() {
		name := fmt.Sprintf("%T", detail)
		names = append(names, name[strings.LastIndexByte(name, '.')+1:])
	}
	return names
}

// detail returns a detail of s, or nil.
func detail[T any](s *status.Status) (none T) {
	for _, detail := range s.Details() {
		if d, ok := detail.(T); ok {
			return d
		}
	}
	return none
}

// limitOf returns a policy in which each key has n places.
func limitOf(n int) ratelimit.Option {
	return ratelimit.WithLimit(func(context.Context, string) int { return n })
}

// The text and the details of a status say which limit is full, and when to try
// again.
func TestBusyStatus(t *testing.T) {
	const quota = "CONCURRENCY_LIMIT_REACHED"
	after := func(d time.Duration) *ratelimit.Limiter {
		return ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, namespace, ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return d }))
	}
	inASecond := ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return time.Second })
	options := func(o ...grpcmw.Option) []grpcmw.Option { return o }
	tests := []struct {
		name           string
		limit          *ratelimit.Limiter
		opts           []grpcmw.Option
		domain, reason string
		delay          time.Duration
		text           string
	}{
		{"one", after(time.Second), nil, "latchkey", quota, time.Second,
			`The limit "test" admits one call at a time, and another call is in progress. Try again in 1 second.`},
		{"longer", after(1500 * time.Millisecond), nil, "latchkey", quota, 1500 * time.Millisecond,
			`The limit "test" admits one call at a time, and another call is in progress. Try again in 2 seconds.`},
		{"shorter", after(time.Millisecond), nil, "latchkey", quota, time.Millisecond,
			`The limit "test" admits one call at a time, and another call is in progress. Try again in 1 second.`},
		{"three, conflict", ratelimit.AtMost(3, httptesting.Failing{Err: sqllock.ErrHeld}, namespace, inASecond), options(grpcmw.WithConflict()), "latchkey", "CALL_IN_PROGRESS", time.Second,
			`The limit "test" admits 3 calls at a time, and 3 are in progress. Try again in 1 second.`},
		{"the limit of the key", ratelimit.AtMost(5, httptesting.Failing{Err: sqllock.ErrHeld}, namespace, inASecond, limitOf(2)), nil, "latchkey", quota, time.Second,
			`The limit "test" admits 2 calls at a time, and 2 are in progress. Try again in 1 second.`},
		{"own text and domain", after(7 * time.Second), options(grpcmw.WithBusyText("You can run one export at a time."), grpcmw.WithErrorDomain("export.example.com")), "export.example.com", quota, 7 * time.Second,
			"You can run one export at a time. Try again in 7 seconds."},
	}
	free := one(ratelimit.OneAtATime(sqllock.NewMemory(), "free"), constant(secret))
	for kind, call := range calls {
		for _, tt := range tests {
			levels := one(tt.limit, constant(secret))
			if len(tt.opts) == 0 { // the status names the level that is full
				levels = append(free, levels...)
			}
			got := status.Convert(call(t.Context(), levels, nothing, tt.opts...))
			if got.Message() != tt.text {
				t.Errorf("%s, %s: %q, want %q", kind, tt.name, got.Message(), tt.text)
			}
			if d := detail[*errdetails.ErrorInfo](got); d.GetDomain() != tt.domain || d.GetReason() != tt.reason || d.GetMetadata()["namespace"] != string(namespace) {
				t.Errorf("%s, %s: ErrorInfo %v, want domain %s, reason %s", kind, tt.name, d, tt.domain, tt.reason)
			}
			if delay := retryDelay(t, got); delay != tt.delay {
				t.Errorf("%s, %s: retry after %v, want the limiter's %v", kind, tt.name, delay, tt.delay)
			}
			if tt.reason != quota {
				continue
			}
			if d, ok := got.Details()[2].(*errdetails.QuotaFailure); !ok || len(d.GetViolations()) != 1 || d.GetViolations()[0].GetSubject() != string(namespace) {
				t.Errorf("%s, %s: QuotaFailure %v, want the namespace as its one subject", kind, tt.name, d)
			}
		}
	}
}

// The call may end while a KeyFunc looks the key up. A rejection for another
// reason is not taken for that end.
func TestCallEndsBesides(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name  string
		locks sqllock.Locker
		key   grpcmw.KeyFunc
		code  codes.Code
	}{
		{"in the KeyFunc", sqllock.NewMemory(), fails(fmt.Errorf("looking up %s: %w", secret, context.Canceled)), codes.Canceled},
		{"no key", sqllock.NewMemory(), fails(grpcmw.ErrNoKey), codes.InvalidArgument},
		{"capacity", httptesting.Failing{Err: sqllock.ErrCapacity}, constant(secret), codes.Unavailable},
		{"another deadline", httptesting.Failing{Err: context.DeadlineExceeded}, constant(secret), codes.Unavailable},
		{"its own end", httptesting.Failing{Err: context.Canceled}, constant(secret), codes.Canceled},
	}
	for kind, call := range calls {
		for _, tt := range tests {
			err := call(ctx, one(ratelimit.OneAtATime(tt.locks, namespace), tt.key), nothing)
			if got := status.Convert(err); got.Code() != tt.code || strings.Contains(got.Message(), secret) {
				t.Errorf("%s, %s: %v, want %v", kind, tt.name, got, tt.code)
			}
		}
	}
}

// A call that needs one limit twice is a mistake of the server, which is in the
// log. Behind two interceptors it needs two places. In one stack the limit has a
// bad policy.
func TestReportsTwice(t *testing.T) {
	for kind, call := range calls {
		var log httptesting.Logbook
		twice := one(ratelimit.AtMost(2, sqllock.NewMemory(), namespace), constant(secret))
		err := call(t.Context(), twice, func(ctx context.Context) error { return call(ctx, twice, nothing, grpcmw.WithLogger(log.Logger())) })
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		log.Want(t, kind, 1, "level=ERROR", "two places of one limit", "limit=2", "namespace=test", "method=")

		if err := call(t.Context(), append(twice, twice...), nothing, grpcmw.WithLogger(log.Logger())); status.Code(err) != codes.Internal {
			t.Errorf("%s, twice in a stack: %v, want INTERNAL", kind, err)
		}
		log.Want(t, kind, 1, "level=ERROR", "the policy of a limit failed", "bad policy", string(namespace))
	}
}

// Health checks and reflection are not limited by interceptors for the whole
// server, unless asked for. What only looks like one of them is limited.
func TestInfrastructureIsNotLimited(t *testing.T) {
	levels := one(ratelimit.OneAtATime(sqllock.NewMemory(), namespace), fails(grpcmw.ErrNoKey)) // a balancer is no user
	for method, exempt := range map[string]bool{
		"/grpc.health.v1.Health/Check":                                   true,
		"/grpc.health.v1.Health/Watch":                                   true,
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      true,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": true,
		"/grpc.health.v1.Health/x/Check":                                 false,
		"/grpc.health.v1.Health":                                         false,
		"//grpc.health.v1.Health/Check":                                  false,
		"/grpc.health.v1.HealthExport/Check":                             false,
		"/my.grpc.health.v1.Health/Check":                                false,
		"":                                                               false,
	} {
		for _, opts := range [][]grpcmw.Option{nil, {grpcmw.WithAllServices()}} {
			unary := call(t.Context(), grpcmw.UnaryStackInterceptor(levels, opts...), method, nil, done)
			stream := grpcmw.StreamStackInterceptor(levels, opts...)(nil, oneMessage{}, &grpc.StreamServerInfo{FullMethod: method},
				func(any, grpc.ServerStream) error { return nil })
			for kind, err := range map[string]error{"unary": unary, "stream": stream} {
				if limited := !exempt || opts != nil; limited != (err != nil) {
					t.Errorf("%q, %s, %d options: %v", method, kind, len(opts), err)
				}
			}
		}
	}
}
