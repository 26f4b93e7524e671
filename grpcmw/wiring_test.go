package grpcmw_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A call that needs one limit twice is reported in the log.
func TestReportsTwice(t *testing.T) {
	for kind, call := range calls {
		var log logbook
		l := ratelimit.AtMost(2, sqllock.NewMemory(), namespace)
		err := call(t.Context(), one(l, constant(secret)), func(ctx context.Context) error {
			return call(ctx, one(l, constant(secret)), nothing, log.option())
		})
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		log.Want(t, kind, 1, "level=ERROR", "two places of one limit", "limit=2", "namespace=test", "method=")
	}
}

// Health checks and reflection are not limited by interceptors for the whole
// server, unless asked for. What only looks like one of them is limited.
func TestInfrastructureIsNotLimited(t *testing.T) {
	t.Parallel()
	levels := one(ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, namespace), fails(grpcmw.ErrNoKey)) // a balancer is no user
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
		for _, opts := range [][]grpcmw.Option{nil, {grpcmw.WithAllServices()}} {
			unary := unaryCall(t.Context(), method, levels, nothing, opts...)
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
