package grpcmw_test

import (
	"context"
	"fmt"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// tenantOf stands for a service's own lookup of the tenant of a user.
func tenantOf(ctx context.Context) (string, bool) {
	_, ok := authenticated(ctx)
	return "initech", ok
}

// everyone is one key for all calls.
func everyone(context.Context, interceptors.CallMeta) (string, error) { return "all", nil }

// exportLevels are one export for each user, two for each tenant, and fifty in
// all.
func exportLevels(locks sqllock.Locker) []grpcmw.Level {
	return []grpcmw.Level{
		{Limiter: ratelimit.OneAtATime(locks, "exports of a user"), Key: grpcmw.FromContext(authenticated)},
		{Limiter: ratelimit.AtMost(2, locks, "exports of a tenant"), Key: grpcmw.FromContext(tenantOf)},
		{Limiter: ratelimit.AtMost(50, locks, "exports"), Key: everyone},
	}
}

// A call gets a place on each level, or its status names the level that is
// full.
func ExampleUnaryStackInterceptor() {
	intercept := grpcmw.UnaryStackInterceptor(exportLevels(sqllock.NewMemory()))
	export := func(user string, during grpc.UnaryHandler) {
		err := call(login(user), intercept, "/export.Service/Export", nil, func(ctx context.Context, req any) (any, error) {
			fmt.Println(user, "exports")
			return during(ctx, req)
		})
		if err == nil {
			return
		}
		for _, detail := range status.Convert(err).Details() {
			if quota, ok := detail.(*errdetails.QuotaFailure); ok {
				fmt.Printf("%s gets %v: %s\n", user, status.Code(err), quota.GetViolations()[0].GetSubject())
			}
		}
	}
	export("ada", func(context.Context, any) (any, error) {
		export("ada", done)
		export("grace", func(context.Context, any) (any, error) {
			export("mary", done)
			return nil, nil
		})
		return nil, nil
	})
	// Output:
	// ada exports
	// ada gets ResourceExhausted: exports of a user
	// grace exports
	// mary gets ResourceExhausted: exports of a tenant
}

// A level's key may be in the first message. All places are acquired with it.
func ExampleStreamStackInterceptor() {
	locks := sqllock.NewMemory()
	intercept := grpcmw.StreamStackInterceptor([]grpcmw.Level{
		{Limiter: ratelimit.OneAtATime(locks, "uploads of a user"), Key: grpcmw.FromContext(authenticated)},
		{Limiter: ratelimit.OneAtATime(locks, "document"), Key: grpcmw.Field("response_status.message")},
	})
	upload := func(_ any, stream grpc.ServerStream) error {
		ofUser := sqllock.Namespace("uploads of a user").Key("alice")
		fmt.Println("at the start, the place of the user:", sqllock.Held(stream.Context(), ofUser))
		err := stream.RecvMsg(&pb.StreamingOutputCallRequest{})
		fmt.Println("with the first message:", sqllock.Held(stream.Context(), ofUser))
		return err
	}
	info := &grpc.StreamServerInfo{FullMethod: "/docs.Service/Upload", IsClientStream: true}
	fmt.Println(intercept(nil, streamOf{oneMessage{"document-7"}, login("alice")}, info, upload))
	// Output:
	// at the start, the place of the user: false
	// with the first message: true
	// <nil>
}
