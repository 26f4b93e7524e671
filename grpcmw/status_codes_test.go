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

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// secret is the key in the tests below. Nothing that a client gets holds it.
const secret = "alice-4711"

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
		return func(*testing.T) sqllock.Locker { return broken{fmt.Errorf("%w: for a reason", err)} }
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
		{"long key", free, strings.Repeat(secret, 103), nil, nil, invalid},
		{"long key, dry run", free, strings.Repeat(secret, 103), nil, []ratelimit.Option{ratelimit.WithDryRun()}, admitted},
		{"key with a NUL", free, secret + "\x00", nil, nil, invalid},
	}
	for _, source := range sources {
		for _, kind := range kinds {
			for _, tt := range tests {
				t.Run(source.name+"/"+kind.name+"/"+tt.name, func(t *testing.T) {
					t.Parallel()
					limit := ratelimit.OneAtATime(tt.locks(t), namespace, tt.policy...)
					ran := false
					s := &service{work: func(ctx context.Context) error { ran = true; return ctx.Err() }}
					client := start(t, s, limited(limit, source.key, append(tt.options, grpcmw.WithPushback(5*time.Second))...)...)

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
				})
			}
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

func TestBusyDetails(t *testing.T) {
	locks := sqllock.NewMemory()
	hold(t, locks, secret)
	limit := ratelimit.OneAtATime(locks, namespace,
		ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return 1500 * time.Millisecond }))
	tests := []struct {
		name   string
		opts   []grpcmw.Option
		domain string
		reason string
	}{
		{"default", nil, "latchkey", "CONCURRENCY_LIMIT_REACHED"},
		{"conflict", []grpcmw.Option{grpcmw.WithConflict()}, "latchkey", "CALL_IN_PROGRESS"},
		{"domain", []grpcmw.Option{grpcmw.WithErrorDomain("export.example.com")}, "export.example.com", "CONCURRENCY_LIMIT_REACHED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := start(t, &service{}, limited(limit, grpcmw.Metadata("user-bin"), tt.opts...)...)
			err := kinds[0].call(t.Context(), client, secret)
			for _, detail := range status.Convert(err).Details() {
				switch d := detail.(type) {
				case *errdetails.ErrorInfo:
					if d.GetDomain() != tt.domain || d.GetReason() != tt.reason || d.GetMetadata()["namespace"] != string(namespace) {
						t.Errorf("ErrorInfo %v, want domain %s, reason %s", d, tt.domain, tt.reason)
					}
				case *errdetails.RetryInfo:
					if got := d.GetRetryDelay().AsDuration(); got != 1500*time.Millisecond {
						t.Errorf("retry after %v, want the limiter's 1.5s", got)
					}
				case *errdetails.QuotaFailure:
					if len(d.GetViolations()) != 1 || d.GetViolations()[0].GetSubject() != string(namespace) {
						t.Errorf("QuotaFailure %v, want the namespace as its one subject", d)
					}
				default:
					t.Errorf("unexpected detail %T", d)
				}
			}
		})
	}
}

// The text of a status says which limit is full, and when to try again.
func TestBusyMessage(t *testing.T) {
	wait := func(d time.Duration) ratelimit.Option {
		return ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return d })
	}
	one := func(opts ...ratelimit.Option) *ratelimit.Limiter {
		return ratelimit.OneAtATime(broken{sqllock.ErrHeld}, namespace, opts...)
	}
	tests := []struct {
		name  string
		limit *ratelimit.Limiter
		opts  []grpcmw.Option
		want  string
	}{
		{"one", one(), nil, `The limit "test" admits one call at a time, and another call is in progress. Try again in 1 second.`},
		{"longer", one(wait(1500 * time.Millisecond)), nil, `The limit "test" admits one call at a time, and another call is in progress. Try again in 2 seconds.`},
		{"shorter", one(wait(time.Millisecond)), nil, `The limit "test" admits one call at a time, and another call is in progress. Try again in 1 second.`},
		{"three", ratelimit.AtMost(3, broken{sqllock.ErrHeld}, namespace), []grpcmw.Option{grpcmw.WithConflict()},
			`The limit "test" admits 3 calls at a time, and 3 are in progress. Try again in 1 second.`},
		{"own text", one(wait(7 * time.Second)), []grpcmw.Option{grpcmw.WithBusyText("You can run one export at a time.")},
			"You can run one export at a time. Try again in 7 seconds."},
	}
	for _, tt := range tests {
		client := start(t, &service{}, limited(tt.limit, constant(secret), tt.opts...)...)
		if got := status.Convert(kinds[0].call(t.Context(), client, secret)).Message(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The error of a service's KeyFunc decides on the status.
func TestKeyFuncFails(t *testing.T) {
	const fault = "The server could not find out whom the call is for."
	tests := []struct {
		name string
		err  error
		code codes.Code
		text string
	}{
		{"no key", fmt.Errorf("nobody called %s: %w", secret, grpcmw.ErrNoKey), codes.InvalidArgument, "grpcmw: no key in the call"},
		{"its own error", errors.New("no user " + secret), codes.Internal, fault},
		{"a bad id", fmt.Errorf("%s: %w", secret, ratelimit.ErrBadID), codes.InvalidArgument, "grpcmw: bad key"},
		{"a status", status.Error(codes.Unauthenticated, "log in first"), codes.Unauthenticated, "log in first"},
		{"a status, wrapped", fmt.Errorf("looking up %s: %w", secret, status.Error(codes.Unauthenticated, "log in first")), codes.Unauthenticated, "log in first"},
		{"a status that says OK", fmt.Errorf("looking up %s: %w", secret, statusError{status.New(codes.OK, secret)}), codes.Internal, fault},
		{"a status that is none", statusError{}, codes.Internal, fault},
		{"a status to come back from", status.Error(codes.Unavailable, "no directory"), codes.Unavailable, "no directory"},
		{"a context's end that is not the call's", context.DeadlineExceeded, codes.Internal, fault},
		{"a message that never comes", grpcmw.ErrNeedMessage, codes.InvalidArgument, "grpcmw: no key in the call"},
	}
	for _, kind := range kinds {
		for _, tt := range tests {
			t.Run(kind.name+"/"+tt.name, func(t *testing.T) {
				key := func(context.Context, interceptors.CallMeta) (string, error) { return "", tt.err }
				limit := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
				client := start(t, &service{work: func(context.Context) error { return nil }}, limited(limit, key, grpcmw.WithPushback(1))...)
				var trailer metadata.MD
				got := status.Convert(kind.call(t.Context(), client, secret, grpc.Trailer(&trailer)))
				if trailer["grpc-retry-pushback-ms"] != nil {
					t.Error("a pushback beside a status that is not the limiter's")
				}
				if got.Code() != tt.code || got.Message() != tt.text {
					t.Errorf("status %v %q, want %v %q", got.Code(), got.Message(), tt.code, tt.text)
				}
			})
		}
	}
}

// A statusError is an error that has a status.
type statusError struct{ status *status.Status }

func (statusError) Error() string                { return "no " + secret }
func (e statusError) GRPCStatus() *status.Status { return e.status }

// A client may read the errors of the package's own KeyFuncs.
func TestKeyFuncTells(t *testing.T) {
	twice := metadata.AppendToOutgoingContext(t.Context(), "user", "alice", "user", secret)
	tests := []struct {
		name string
		key  grpcmw.KeyFunc
		text string
	}{
		{"field", grpcmw.Field("response_status.user"), `grpcmw: no key at "response_status.user" in grpc.testing.EchoStatus: the message has no field user`},
		{"metadata", grpcmw.Metadata("user"), "grpcmw: ratelimit: bad id: it is in the call's metadata more than once"},
		{"joined", grpcmw.Join(constant("a"), grpcmw.Metadata("none")), `grpcmw: no key in the call: metadata entry "none" is missing or empty`},
		{"field not set", grpcmw.Field("response_status.message"), `grpcmw: no key in the call: field "response_status.message" is not set or empty`},
		{"context", grpcmw.FromContext(func(context.Context) (string, bool) { return "", false }), "grpcmw: no key in the call"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := start(t, &service{}, limited(ratelimit.OneAtATime(sqllock.NewMemory(), namespace), tt.key)...)
			_, err := client.UnaryCall(twice, &pb.SimpleRequest{})
			if got := status.Convert(err); got.Code() != codes.InvalidArgument || got.Message() != tt.text {
				t.Errorf("status %v %q, want %q", got.Code(), got.Message(), tt.text)
			}
		})
	}
}

// The call may end while a KeyFunc looks the key up.
func TestCallEndsInKeyFunc(t *testing.T) {
	intercept := grpcmw.UnaryServerInterceptor(ratelimit.OneAtATime(sqllock.NewMemory(), namespace),
		func(ctx context.Context, _ interceptors.CallMeta) (string, error) {
			return "", fmt.Errorf("looking up %s: %w", secret, ctx.Err())
		})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := intercept(ctx, nil, unaryInfo, nil)
	if got := status.Convert(err); got.Code() != codes.Canceled || got.Message() != context.Canceled.Error() {
		t.Errorf("status %v %q", got.Code(), got.Message())
	}
}

// A rejection at the end of a call is not taken for that end.
func TestCallEndsBesides(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fails := func(err error) grpcmw.KeyFunc {
		return func(context.Context, interceptors.CallMeta) (string, error) { return "", err }
	}
	tests := []struct {
		name  string
		locks sqllock.Locker
		key   grpcmw.KeyFunc
		code  codes.Code
	}{
		{"no key", sqllock.NewMemory(), fails(grpcmw.ErrNoKey), codes.InvalidArgument},
		{"a status", sqllock.NewMemory(), fails(status.Error(codes.Unauthenticated, "log in first")), codes.Unauthenticated},
		{"capacity", broken{sqllock.ErrCapacity}, constant(secret), codes.Unavailable},
		{"another deadline", broken{context.DeadlineExceeded}, constant(secret), codes.Unavailable},
		{"its own end", broken{context.Canceled}, constant(secret), codes.Canceled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			intercept := grpcmw.UnaryServerInterceptor(ratelimit.OneAtATime(tt.locks, namespace), tt.key)
			if _, err := intercept(ctx, nil, unaryInfo, nil); status.Code(err) != tt.code {
				t.Errorf("%v, want %v", err, tt.code)
			}
		})
	}
}

// Both transports report a bad id by the same error.
func TestRepeatedMatchesErrBadID(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("user", "alice", "user", "bob"))
	if _, err := grpcmw.Metadata("user")(ctx, unary(nil)); !errors.Is(err, ratelimit.ErrBadID) {
		t.Errorf("%v, want ErrBadID", err)
	}
}

// Each rejection says the time to wait of its own moment, also if it differs
// from the rejection before.
func TestRetryInfoFollows(t *testing.T) {
	var waits []time.Duration
	for range 3 {
		waits = append(waits, time.Second, time.Second, 5*time.Second)
	}
	next := 0
	l := ratelimit.OneAtATime(sqllock.NewMemory(), namespace, ratelimit.WithRetryAfter(func(time.Duration) time.Duration {
		next++
		return waits[next-1]
	}))
	lock, err := l.Acquire(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	client := start(t, &service{}, limited(l, grpcmw.Metadata("user-bin"))...)
	for _, want := range waits {
		err := kinds[0].call(t.Context(), client, secret)
		for _, detail := range status.Convert(err).Details() {
			if d, ok := detail.(*errdetails.RetryInfo); ok && d.GetRetryDelay().AsDuration() != want {
				t.Errorf("RetryInfo says %v, want %v", d.GetRetryDelay().AsDuration(), want)
			}
		}
	}
	if next != len(waits) {
		t.Errorf("%d rejections, want %d", next, len(waits))
	}
}
