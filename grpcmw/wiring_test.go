package grpcmw_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

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
				levels := one(ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, namespace), key)
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
