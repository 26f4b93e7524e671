package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
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

// secret is the key in the tests below. Nothing that a client gets holds it.
const secret = "ada-4711"

func TestStatusCodes(t *testing.T) {
	type want struct {
		code    codes.Code
		details []string // kinds of the status's details, in order
	}
	var (
		quota       = want{codes.ResourceExhausted, []string{"ErrorInfo", "RetryInfo", "QuotaFailure"}}
		conflict    = want{codes.Aborted, []string{"ErrorInfo", "RetryInfo"}}
		unavailable = want{codes.Unavailable, []string{"RetryInfo"}}
		invalid     = want{codes.InvalidArgument, nil}
		admitted    = want{codes.OK, nil}
	)
	held := func(t *testing.T) sqllock.Locker {
		locks := sqllock.NewMemory()
		hold(t, locks, secret)
		return locks
	}
	answers := func(err error) func(*testing.T) sqllock.Locker {
		return func(*testing.T) sqllock.Locker { return httptesting.Failing{Err: fmt.Errorf("%w: for a reason", err)} }
	}
	free := func(*testing.T) sqllock.Locker { return sqllock.NewMemory() }

	tests := []struct {
		name    string
		locks   func(*testing.T) sqllock.Locker
		key     string // of the call
		options []grpcmw.Option
		policy  []ratelimit.Option
		want    want
	}{
		{"free", free, secret, nil, nil, admitted},
		{"busy", held, secret, nil, nil, quota},
		{"busy, conflict", held, secret, []grpcmw.Option{grpcmw.WithConflict()}, nil, conflict},
		{"busy after a wait", held, secret, nil, []ratelimit.Option{ratelimit.WithWait(time.Millisecond, 9)}, quota},
		{"busy, dry run", held, secret, nil, []ratelimit.Option{ratelimit.WithDryRun()}, admitted},
		{"busy, fail open", held, secret, nil, []ratelimit.Option{ratelimit.WithFailOpen()}, quota},

		{"away", answers(sqllock.ErrUnavailable), secret, nil, nil, unavailable},
		{"away, conflict", answers(sqllock.ErrUnavailable), secret, []grpcmw.Option{grpcmw.WithConflict()}, nil, unavailable},
		{"away, fail open", answers(sqllock.ErrUnavailable), secret, nil, []ratelimit.Option{ratelimit.WithFailOpen()}, admitted},
		{"away, dry run", answers(sqllock.ErrUnavailable), secret, nil, []ratelimit.Option{ratelimit.WithDryRun()}, admitted},
		{"capacity", answers(sqllock.ErrCapacity), secret, nil, nil, unavailable},
		{"capacity, fail open", answers(sqllock.ErrCapacity), secret, nil, []ratelimit.Option{ratelimit.WithFailOpen()}, unavailable},
		{"not exclusive", answers(sqllock.ErrNotExclusive), secret, nil, nil, unavailable},
		{"config", answers(sqllock.ErrConfig), secret, nil, nil, unavailable},
		{"config, fail open", answers(sqllock.ErrConfig), secret, nil, []ratelimit.Option{ratelimit.WithFailOpen()}, unavailable},
		{"closed", answers(sqllock.ErrClosed), secret, nil, nil, unavailable},
		{"unknown", answers(errors.New("secret host " + secret)), secret, nil, nil, unavailable},

		{"no key", free, "", nil, nil, invalid},
		{"no key, dry run", free, "", nil, []ratelimit.Option{ratelimit.WithDryRun()}, admitted},
		{"long key", free, strings.Repeat(secret, 129), nil, nil, invalid},
		{"long key, dry run", free, strings.Repeat(secret, 129), nil, []ratelimit.Option{ratelimit.WithDryRun()}, admitted},
		{"key with a NUL", free, secret + "\x00", nil, nil, invalid},
	}
	for i, kind := range kinds {
		for j, tt := range tests {
			source := sources[(i+j)%len(sources)]
			t.Run(source.name+"/"+kind.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				levels := one(ratelimit.OneAtATime(tt.locks(t), namespace, tt.policy...), source.key)
				if j%4 > 1 { // with a free level on either side
					free := sqllock.NewMemory()
					levels = append(one(ratelimit.OneAtATime(free, "all"), constant("everybody")), levels...)
					levels = append(levels, one(ratelimit.OneAtATime(free, "tenant"), constant("acme"))...)
				}
				ran := false
				s := &service{work: func(ctx context.Context) error { ran = true; return ctx.Err() }}
				client := start(t, s, stacked(levels, append(tt.options, grpcmw.WithPushback(5*time.Second))...)...)

				var header, trailer metadata.MD
				err := kind.call(t.Context(), client, tt.key, grpc.Header(&header), grpc.Trailer(&trailer))
				got := status.Convert(err)
				if got.Code() != tt.want.code || !slices.Equal(detailKinds(got), tt.want.details) {
					t.Errorf("status %v with %v, want %v with %v", got.Code(), detailKinds(got), tt.want.code, tt.want.details)
				}
				if ran != (tt.want.code == codes.OK) {
					t.Errorf("the handler's work ran: %v", ran)
				}
				if told := fmt.Sprint(got.Message(), prototext.Format(got.Proto()), header, trailer); strings.Contains(told, secret) {
					t.Errorf("the client is told the key: %s", told)
				}
				var pushback []string
				switch {
				case got.Code() == codes.Unavailable: // whatever WithPushback says
					pushback = []string{strconv.FormatInt(retryDelay(t, got).Milliseconds(), 10)}
				case len(tt.want.details) > 0:
					pushback = []string{"5000"}
				}
				if got := trailer["grpc-retry-pushback-ms"]; !slices.Equal(got, pushback) {
					t.Errorf("pushback %v, want %v", got, pushback)
				}
				if header["grpc-retry-pushback-ms"] != nil {
					t.Error("a pushback in the header ends the client's retries")
				}
				wantPlacesFree(t, levels)
			})
		}
	}
}

// retryDelay returns the time in the RetryInfo of s.
func retryDelay(t *testing.T, s *status.Status) time.Duration {
	t.Helper()
	for _, detail := range s.Details() {
		if d, ok := detail.(*errdetails.RetryInfo); ok {
			return d.GetRetryDelay().AsDuration()
		}
	}
	t.Errorf("status %v has no RetryInfo", s)
	return 0
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

// errorInfo returns the ErrorInfo of s, or nil.
func errorInfo(s *status.Status) *errdetails.ErrorInfo {
	for _, detail := range s.Details() {
		if d, ok := detail.(*errdetails.ErrorInfo); ok {
			return d
		}
	}
	return nil
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
		{"own text and domain", after(7 * time.Second), options(grpcmw.WithBusyText("You can run one export at a time."), grpcmw.WithErrorDomain("export.example.com")), "export.example.com", quota, 7 * time.Second,
			"You can run one export at a time. Try again in 7 seconds."},
	}
	for kind, call := range calls {
		for _, tt := range tests {
			got := status.Convert(call(t.Context(), one(tt.limit, constant(secret)), nothing, tt.opts...))
			if got.Message() != tt.text {
				t.Errorf("%s, %s: %q, want %q", kind, tt.name, got.Message(), tt.text)
			}
			if d := errorInfo(got); d.GetDomain() != tt.domain || d.GetReason() != tt.reason || d.GetMetadata()["namespace"] != string(namespace) {
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

// Each rejection says what holds at its own moment, also if that differs from the
// rejection before: which level is full, the limit that the key has there, and
// the time to wait.
func TestBusyStatusFollows(t *testing.T) {
	locks, size, retry := sqllock.NewMemory(), 0, time.Duration(0)
	levels := levelsOf(func(_ int, ns sqllock.Namespace) *ratelimit.Limiter {
		return ratelimit.AtMost(5, locks, ns, ratelimit.WithLimit(func(context.Context, string) int { return size }),
			ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return retry }))
	})
	intercept := grpcmw.UnaryStackInterceptor(levels)
	for _, now := range []struct {
		size  int
		retry time.Duration
		text  string
	}{
		{1, time.Second, "one call at a time"},
		{1, time.Second, "one call at a time"},
		{1, 5 * time.Second, "one call at a time"},
		{2, 5 * time.Second, "2 calls at a time"},
		{3, time.Second, "3 calls at a time"},
	} {
		size, retry = now.size, now.retry
		for i, level := range levels {
			var held sqllock.Locks
			for range size {
				lock, err := level.Limiter.Acquire(t.Context(), "alice")
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, lock)
			}
			_, err := intercept(t.Context(), nil, unaryInfo, nil)
			got := status.Convert(err)
			if want := fmt.Sprintf("The limit %q admits %s,", three[i], now.text); got.Code() != codes.ResourceExhausted || !strings.HasPrefix(got.Message(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			if subject := got.Details()[2].(*errdetails.QuotaFailure).GetViolations()[0].GetSubject(); subject != string(three[i]) || errorInfo(got).GetMetadata()["namespace"] != subject {
				t.Errorf("QuotaFailure of %s, ErrorInfo %v; want %s", subject, errorInfo(got), three[i])
			}
			if told := retryDelay(t, got); told != retry {
				t.Errorf("RetryInfo says %v, want %v", told, retry)
			}
			_ = held.Unlock()
		}
	}
}

// A statusError is an error that has a status.
type statusError struct{ status *status.Status }

func (statusError) Error() string                { return "no such user" }
func (e statusError) GRPCStatus() *status.Status { return e.status }

// The error of a service's KeyFunc decides on the status, and on the log. The
// limiter counts the call, unless it bypasses the limit.
func TestKeyFuncErrors(t *testing.T) {
	const fault = "The server could not find out whom the call is for."
	login := status.Error(codes.Unauthenticated, "log in first")
	tests := []struct {
		name   string
		err    error
		code   codes.Code
		text   string // "": any
		logged string // "": nothing
	}{
		{"no key", fmt.Errorf("nobody called %s: %w", "bob", grpcmw.ErrNoKey), codes.InvalidArgument, "grpcmw: no key in the call", `level=WARN msg="grpcmw: a call has no key: is the interceptor after the authentication?`},
		{"its own error", errors.New("directory: connection refused"), codes.Internal, fault, "directory: connection refused"},
		{"a bad id", fmt.Errorf("%s: %w", secret, ratelimit.ErrBadID), codes.InvalidArgument, "grpcmw: bad key", ""},
		{"away", fmt.Errorf("looking up %s: %w", secret, sqllock.ErrUnavailable), codes.Unavailable, "", ""},
		{"a status", login, codes.Unauthenticated, "log in first", ""},
		{"a status, wrapped", fmt.Errorf("looking up %s: %w", secret, login), codes.Unauthenticated, "log in first", ""},
		{"a status that says OK", fmt.Errorf("looking up: %w", statusError{status.New(codes.OK, "fine")}), codes.Internal, fault, "a KeyFunc failed"},
		{"a status to come back from", status.Error(codes.Unavailable, "no directory"), codes.Unavailable, "no directory", ""},
		{"a context's end that is not the call's", context.DeadlineExceeded, codes.Internal, fault, "deadline exceeded"},
		{"a message that never comes", grpcmw.ErrNeedMessage, codes.InvalidArgument, "grpcmw: no key in the call", ""},
		{"bypass", fmt.Errorf("an admin: %w", grpcmw.ErrBypass), codes.OutOfRange, "", ""},
	}
	for i, kind := range kinds {
		for _, tt := range tests {
			t.Run(kind.name+"/"+tt.name, func(t *testing.T) {
				var log logbook
				limit := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
				s := &service{work: func(ctx context.Context) error {
					if _, ok := sqllock.FromContext(ctx); ok {
						t.Error("a call that is not limited has a lock")
					}
					return status.Error(codes.OutOfRange, "ran")
				}}
				client := start(t, s, limited(limit, fails(tt.err), grpcmw.WithPushback(1), log.option())...)
				var trailer metadata.MD
				got := status.Convert(kinds[i].call(t.Context(), client, secret, grpc.Trailer(&trailer)))
				if got.Code() != tt.code || tt.text != "" && got.Message() != tt.text {
					t.Errorf("status %v %q, want %v %q", got.Code(), got.Message(), tt.code, tt.text)
				}
				if away := tt.name == "away"; (trailer["grpc-retry-pushback-ms"] != nil) != away {
					t.Error("a pushback beside a status that is not the limiter's, or none beside its own")
				}
				switch {
				case tt.logged != "":
					log.Want(t, tt.name, 1, tt.logged, "namespace=test", "method=/grpc.testing.TestService/")
				case !errors.Is(tt.err, grpcmw.ErrNeedMessage): // a server's programmer reads that a unary call has no message
					log.Want(t, tt.name, 0)
				}
				if n := limit.Stats().Requests[ratelimit.Failed]; (n == 1) == errors.Is(tt.err, grpcmw.ErrBypass) {
					t.Errorf("the limiter has counted %d failures", n)
				}
			})
		}
	}
}

// A client may read the errors of the package's own KeyFuncs.
func TestKeyFuncTells(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user", "alice", "user", secret))
	for text, key := range map[string]grpcmw.KeyFunc{
		`grpcmw: no key at "response_status.user" in grpc.testing.EchoStatus: the message has no field user`: grpcmw.Field("response_status.user"),
		"grpcmw: ratelimit: bad id: it is in the call's metadata more than once":                             grpcmw.Metadata("user"),
		`grpcmw: no key in the call: metadata entry "none" is missing or empty`:                              grpcmw.Join(constant("a"), grpcmw.Metadata("none")),
		`grpcmw: no key in the call: field "response_status.code" is not set or empty`:                       grpcmw.Field("response_status.code"),
		"grpcmw: no key in the call": grpcmw.FromContext(func(context.Context) (string, bool) { return "", false }),
	} {
		var log logbook
		err := unaryCall(ctx, unaryInfo.FullMethod, one(ratelimit.OneAtATime(sqllock.NewMemory(), namespace), key), nothing, log.option())
		if strings.Contains(text, "has no field") { // a path that does not fit the method's message
			log.Want(t, text, 1, "level=ERROR", "a KeyFunc failed", "the message has no field user", "method=/test.Service/Call")
		}
		if got := status.Convert(err); got.Code() != codes.InvalidArgument || got.Message() != text {
			t.Errorf("status %v %q, want %q", got.Code(), got.Message(), text)
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
		{"a status", sqllock.NewMemory(), fails(status.Error(codes.Unauthenticated, "log in first")), codes.Unauthenticated},
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
