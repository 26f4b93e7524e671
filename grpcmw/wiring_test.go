package grpcmw_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A logbook is a log that a test reads.
type logbook struct{ bytes.Buffer }

func (l *logbook) option() grpcmw.Option {
	return grpcmw.WithLogger(slog.New(slog.NewTextHandler(&l.Buffer, nil)))
}

// want fails the test unless lines have been logged since the last look, each
// with all of parts.
func (l *logbook) want(t *testing.T, when string, lines int, parts ...string) {
	t.Helper()
	got := l.String()
	l.Reset()
	if strings.Count(got, "\n") != lines || strings.Contains(got, secret) {
		t.Errorf("%s: logged %q, want %d lines without a key", when, got, lines)
	}
	for line := range strings.Lines(got) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				t.Errorf("%s: logged %q, want it to hold %q", when, line, part)
			}
		}
	}
}

// askers make calls through one of the two interceptors, nested in the call
// whose context they are given, and run handler in them.
var askers = []struct {
	name string
	ask  func(ctx context.Context, l *ratelimit.Limiter, key grpcmw.KeyFunc, opts ...grpcmw.Option) func(handler func(context.Context) error) error
}{
	{"unary", func(ctx context.Context, l *ratelimit.Limiter, key grpcmw.KeyFunc, opts ...grpcmw.Option) func(func(context.Context) error) error {
		intercept := grpcmw.UnaryServerInterceptor(l, key, opts...)
		return func(handler func(context.Context) error) error {
			_, err := intercept(ctx, nil, unaryInfo, func(ctx context.Context, _ any) (any, error) { return nil, handler(ctx) })
			return err
		}
	}},
	{"stream", func(ctx context.Context, l *ratelimit.Limiter, key grpcmw.KeyFunc, opts ...grpcmw.Option) func(func(context.Context) error) error {
		intercept := grpcmw.StreamServerInterceptor(l, key, opts...)
		return func(handler func(context.Context) error) error {
			return intercept(nil, quietStream{ctx: ctx}, streamInfo, func(_ any, s grpc.ServerStream) error { return handler(s.Context()) })
		}
	}},
}

// A method whose calls never have a key is reported in the log, once a minute.
func TestReportsNoKey(t *testing.T) {
	for _, a := range askers {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log logbook
				unknown := func(context.Context) (string, bool) { return "", false } // nobody has authenticated
				ask := a.ask(t.Context(), ratelimit.OneAtATime(sqllock.NewMemory(), namespace), grpcmw.FromContext(unknown), log.option())
				again := func() {
					t.Helper()
					if err := ask(nil); status.Code(err) != codes.InvalidArgument {
						t.Errorf("%v, want INVALID_ARGUMENT", err)
					}
				}
				parts := []string{"level=WARN", "grpcmw: a call has no key", "authentication", "namespace=test", "method=/test.Service/"}
				again()
				log.want(t, "the first call", 1, parts...)
				again()
				time.Sleep(time.Minute - 1)
				again()
				log.want(t, "within the minute", 0)
				time.Sleep(time.Nanosecond)
				again()
				log.want(t, "after the minute", 1, append(parts, "times=3")...)
			})
		})
	}
}

// A call that needs one limit twice is reported in the log. What is no mistake
// is not.
func TestReportsTwice(t *testing.T) {
	tests := []struct {
		name  string
		inner func(sqllock.Locker) *ratelimit.Limiter
		key   string
		early bool // the outer lock is given back before
		lines int
		want  codes.Code
	}{
		{"one at a time", func(l sqllock.Locker) *ratelimit.Limiter { return ratelimit.OneAtATime(l, namespace) }, secret, false, 1, codes.ResourceExhausted},
		{"two at a time", func(l sqllock.Locker) *ratelimit.Limiter { return ratelimit.AtMost(2, l, namespace) }, secret, false, 1, codes.OK},
		{"another limit", func(l sqllock.Locker) *ratelimit.Limiter { return ratelimit.OneAtATime(l, "other") }, secret, false, 0, codes.OK},
		{"another key", func(l sqllock.Locker) *ratelimit.Limiter { return ratelimit.OneAtATime(l, namespace) }, "bob", false, 0, codes.OK},
		{"given back", func(l sqllock.Locker) *ratelimit.Limiter { return ratelimit.OneAtATime(l, namespace) }, secret, true, 0, codes.OK},
	}
	for _, a := range askers {
		for _, tt := range tests {
			t.Run(a.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				var log logbook
				locks := sqllock.NewMemory()
				outer := a.ask(t.Context(), ratelimit.OneAtATime(locks, namespace), constant(secret), log.option())
				err := outer(func(ctx context.Context) error {
					if tt.early {
						lock, _ := sqllock.FromContext(ctx)
						_ = lock.Unlock()
					}
					between := a.ask(ctx, ratelimit.OneAtATime(sqllock.NewMemory(), namespace), constant("carol"), log.option())
					return between(func(ctx context.Context) error {
						return a.ask(ctx, tt.inner(locks), constant(tt.key), log.option())(func(context.Context) error { return nil })
					})
				})
				if status.Code(err) != tt.want {
					t.Errorf("%v, want %v", err, tt.want)
				}
				log.want(t, tt.name, tt.lines, "level=ERROR", "two places of one limit", "namespace=test", "method=")
			})
		}
	}
}

// The error of a KeyFunc decides on the status, and on the log.
func TestKeyFuncErrors(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		want   codes.Code
		logged string // "" for nothing
	}{
		{"no key", grpcmw.ErrNoKey, codes.InvalidArgument, "a call has no key"},
		{"bad id", fmt.Errorf("looking up: %w", ratelimit.ErrBadID), codes.InvalidArgument, ""},
		{"away", fmt.Errorf("looking up: %w", sqllock.ErrUnavailable), codes.Unavailable, ""},
		{"its own", errors.New("directory: connection refused"), codes.Internal, "directory: connection refused"},
		{"its own deadline", context.DeadlineExceeded, codes.Internal, "deadline exceeded"},
		{"a status", status.Error(codes.Unauthenticated, "log in first"), codes.Unauthenticated, ""},
		{"bypass", fmt.Errorf("an admin: %w", grpcmw.ErrBypass), codes.OutOfRange, ""},
	}
	for _, a := range askers {
		for _, tt := range tests {
			t.Run(a.name+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				var log logbook
				told := 0
				l := ratelimit.OneAtATime(sqllock.NewMemory(), namespace, ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
					if e.Result != ratelimit.Released {
						told++
					}
				}))
				ask := a.ask(t.Context(), l, grpcmw.Join(fails(tt.err)), log.option())
				err := ask(func(ctx context.Context) error {
					if _, ok := sqllock.FromContext(ctx); ok {
						t.Error("a call that is not limited has a lock")
					}
					return status.Error(codes.OutOfRange, "ran")
				})
				got := status.Convert(err)
				if got.Code() != tt.want || strings.Contains(got.Message(), "directory") {
					t.Errorf("status %v, want %v without the error's text", got, tt.want)
				}
				if tt.want == codes.Unavailable {
					retryDelay(t, got)
				}
				lines := 0
				if tt.logged != "" {
					lines = 1
				}
				log.want(t, tt.name, lines, tt.logged)
				if bypassed := errors.Is(tt.err, grpcmw.ErrBypass); bypassed == (told == 1) {
					t.Errorf("the Observer was told %d times", told)
				}
			})
		}
	}
}

// A path that does not fit the method's message is reported in the log.
func TestReportsWrongField(t *testing.T) {
	var log logbook
	intercept := grpcmw.UnaryServerInterceptor(ratelimit.OneAtATime(sqllock.NewMemory(), namespace), grpcmw.Field("user"), log.option())
	_, err := intercept(t.Context(), &pb.SimpleRequest{ResponseStatus: named(secret)}, unaryInfo, nil)
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v, want INVALID_ARGUMENT", err)
	}
	log.want(t, "a call", 1, "level=ERROR", "a KeyFunc failed", "the message has no field user", "method=/test.Service/Call")
}

// Health checks and reflection are not limited by interceptors for the whole
// server, unless asked for.
func TestInfrastructureIsNotLimited(t *testing.T) {
	tests := []struct {
		name string
		call func(context.Context, *grpc.ClientConn) error
	}{
		{"health", func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{})
			return err
		}},
		{"health, watched", func(ctx context.Context, c *grpc.ClientConn) error {
			stream, err := healthpb.NewHealthClient(c).Watch(ctx, &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}},
		{"reflection", func(ctx context.Context, c *grpc.ClientConn) error {
			stream, err := reflectionpb.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
			if err != nil {
				return err
			}
			_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			_, err = stream.Recv()
			return err
		}},
		{"reflection, v1alpha", func(ctx context.Context, c *grpc.ClientConn) error {
			stream, err := reflectionalpha.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
			if err != nil {
				return err
			}
			//lint:ignore SA1019 clients still use it
			_ = stream.Send(&reflectionalpha.ServerReflectionRequest{MessageRequest: &reflectionalpha.ServerReflectionRequest_ListServices{}})
			_, err = stream.Recv()
			return err
		}},
		{"the service", func(ctx context.Context, c *grpc.ClientConn) error {
			_, err := pb.NewTestServiceClient(c).UnaryCall(ctx, &pb.SimpleRequest{})
			return err
		}},
	}
	for _, all := range []bool{false, true} {
		for _, tt := range tests {
			for _, user := range []string{"alice", ""} { // whose only place is taken; a balancer is no user
				t.Run(fmt.Sprintf("all services %v/%s/user %q", all, tt.name, user), func(t *testing.T) {
					t.Parallel()
					locks := sqllock.NewMemory()
					hold(t, locks, "alice")
					var opts []grpcmw.Option
					if all {
						opts = append(opts, grpcmw.WithAllServices())
					}
					limit := ratelimit.OneAtATime(locks, namespace)
					address := serveAll(t, limited(limit, grpcmw.Metadata("user"), opts...)...)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					if user != "" {
						ctx = metadata.AppendToOutgoingContext(ctx, "user", user)
					}
					want := codes.OK
					switch limited := all || tt.name == "the service"; {
					case limited && user == "":
						want = codes.InvalidArgument
					case limited:
						want = codes.ResourceExhausted
					}
					if err := tt.call(ctx, connect(t, address)); status.Code(err) != want {
						t.Errorf("%v, want %v", err, want)
					}
				})
			}
		}
	}
}

// A method that only looks like one of health checks or reflection is limited.
func TestLooksLikeInfrastructure(t *testing.T) {
	t.Parallel()
	tests := []struct {
		method string
		exempt bool
	}{
		{"/grpc.health.v1.Health/Check", true},
		{"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", true},
		{"/grpc.health.v1.Health/x/Check", false},
		{"/grpc.health.v1.Health", false},
		{"//grpc.health.v1.Health/Check", false},
		{"/grpc.health.v1.HealthExport/Check", false},
		{"/grpc.health.v1.health/Check", false},
		{"/my.grpc.health.v1.Health/Check", false},
		{"", false},
	}
	for _, tt := range tests {
		limit := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
		_, err := grpcmw.UnaryServerInterceptor(limit, constant(secret))(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: tt.method},
			func(ctx context.Context, _ any) (any, error) {
				if _, limited := sqllock.FromContext(ctx); limited == tt.exempt {
					t.Errorf("%q: limited is %v", tt.method, limited)
				}
				return nil, nil
			})
		if err != nil {
			t.Errorf("%q: %v", tt.method, err)
		}
	}
}

// serveAll starts a server of the test service, health checks and reflection.
func serveAll(t *testing.T, opts ...grpc.ServerOption) (address string) {
	t.Helper()
	return listen(t, grpc.NewServer(opts...), func(server *grpc.Server) {
		pb.RegisterTestServiceServer(server, &service{work: func(context.Context) error { return nil }})
		healthpb.RegisterHealthServer(server, health.NewServer())
		reflection.Register(server)
	})
}
