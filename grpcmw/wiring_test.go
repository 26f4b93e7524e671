package grpcmw_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A method whose calls never have a key is reported in the log, once a minute.
func TestReportsNoKey(t *testing.T) {
	for _, kind := range []string{"unary", "stream"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log logbook
				nobody := grpcmw.FromContext(func(context.Context) (string, bool) { return "", false }) // nobody has authenticated
				limit := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
				unary := grpcmw.UnaryServerInterceptor(limit, nobody, log.option())
				stream := grpcmw.StreamServerInterceptor(limit, nobody, log.option())
				again := func() {
					t.Helper()
					var err error
					if kind == "unary" {
						_, err = unary(t.Context(), nil, unaryInfo, nil)
					} else {
						err = stream(nil, streamOf{oneMessage{"alice"}, t.Context()}, streamInfo, nil)
					}
					if status.Code(err) != codes.InvalidArgument {
						t.Errorf("%v, want INVALID_ARGUMENT", err)
					}
				}
				parts := []string{"level=WARN", "grpcmw: a call has no key", "authentication", "namespace=test", "method=/test.Service/"}
				again()
				log.Want(t, "the first call", 1, parts...)
				again()
				time.Sleep(time.Minute - 1)
				again()
				log.Want(t, "within the minute", 0)
				time.Sleep(time.Nanosecond)
				again()
				log.Want(t, "after the minute", 1, append(parts, "times=3")...)
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
	for kind, call := range calls {
		for _, tt := range tests {
			t.Run(kind+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				var log logbook
				locks := sqllock.NewMemory()
				ask := func(ctx context.Context, l *ratelimit.Limiter, key string, work handler) error {
					return call(ctx, one(l, constant(key)), work, log.option())
				}
				err := ask(t.Context(), ratelimit.OneAtATime(locks, namespace), secret, func(ctx context.Context) error {
					if tt.early {
						lock, _ := sqllock.FromContext(ctx)
						_ = lock.Unlock()
					}
					return ask(ctx, ratelimit.OneAtATime(sqllock.NewMemory(), namespace), "carol", func(ctx context.Context) error {
						return ask(ctx, tt.inner(locks), tt.key, nothing)
					})
				})
				if status.Code(err) != tt.want {
					t.Errorf("%v, want %v", err, tt.want)
				}
				log.Want(t, tt.name, tt.lines, "level=ERROR", "two places of one limit", "namespace=test", "method=")
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
	log.Want(t, "a call", 1, "level=ERROR", "a KeyFunc failed", "the message has no field user", "method=/test.Service/Call")
}

// Health checks and reflection are not limited by interceptors for the whole
// server, unless asked for. What only looks like one of them is limited.
func TestInfrastructureIsNotLimited(t *testing.T) {
	t.Parallel()
	for method, exempt := range map[string]bool{
		healthpb.Health_Check_FullMethodName:                              true,
		healthpb.Health_Watch_FullMethodName:                              true,
		reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName: true,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo":  true,
		pb.TestService_UnaryCall_FullMethodName:                           false,
		"/grpc.health.v1.Health/x/Check":                                  false,
		"/grpc.health.v1.Health":                                          false,
		"//grpc.health.v1.Health/Check":                                   false,
		"/grpc.health.v1.HealthExport/Check":                              false,
		"/grpc.health.v1.health/Check":                                    false,
		"/my.grpc.health.v1.Health/Check":                                 false,
		"":                                                                false,
	} {
		for _, all := range []bool{false, true} {
			var opts []grpcmw.Option
			if all {
				opts = append(opts, grpcmw.WithAllServices())
			}
			for name, key := range map[string]grpcmw.KeyFunc{"busy": constant(secret), "no key": fails(grpcmw.ErrNoKey)} { // a balancer is no user
				levels := one(ratelimit.OneAtATime(broken{sqllock.ErrHeld}, namespace), key)
				unary := unaryCall(t.Context(), method, levels, nothing, opts...)
				info := &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}
				stream := grpcmw.StreamServerInterceptor(levels[0].Limiter, key, opts...)(nil, oneMessage{}, info,
					func(any, grpc.ServerStream) error { return nil })
				for kind, err := range map[string]error{"unary": unary, "stream": stream} {
					if limited := !exempt || all; limited != (err != nil) {
						t.Errorf("%q, %s, %s, all services %v: %v", method, kind, name, all, err)
					}
				}
			}
		}
	}
}

// A server's own health checks and reflection pass where the service is busy.
func TestHealthCheckOverASocket(t *testing.T) {
	t.Parallel()
	limit := ratelimit.OneAtATime(broken{sqllock.ErrHeld}, namespace)
	server := grpc.NewServer(limited(limit, constant("alice"))...)
	conn := connect(t, listen(t, server, func(server *grpc.Server) {
		pb.RegisterTestServiceServer(server, &service{work: nothing})
		healthpb.RegisterHealthServer(server, health.NewServer())
		reflection.Register(server)
	}))
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	if _, err := stream.Recv(); err != nil {
		t.Errorf("reflection: %v", err)
	}
	_ = stream.CloseSend()
	if err := kinds[0].call(t.Context(), pb.NewTestServiceClient(conn), "alice"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the service: %v", err)
	}
}
