package grpcmw_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

type handler = func(context.Context) error

// calls are a unary call and a stream, without a server, with interceptors of
// levels in front of work, which begins with the first message. One level goes
// to the interceptor of a single limit.
var calls = map[string]func(ctx context.Context, levels []grpcmw.Level, work handler, opts ...grpcmw.Option) error{
	"unary": func(ctx context.Context, levels []grpcmw.Level, work handler, opts ...grpcmw.Option) error {
		return unaryCall(ctx, unaryInfo.FullMethod, levels, work, opts...)
	},
	"stream": func(ctx context.Context, levels []grpcmw.Level, work handler, opts ...grpcmw.Option) error {
		intercept := grpcmw.StreamStackInterceptor(levels, opts...)
		if len(levels) == 1 {
			intercept = grpcmw.StreamServerInterceptor(levels[0].Limiter, levels[0].Key, opts...)
		}
		return intercept(nil, streamOf{oneMessage{"alice"}, ctx}, streamInfo, func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(&pb.StreamingOutputCallRequest{}); err != nil {
				return err
			}
			return work(stream.Context())
		})
	},
}

// unaryCall is a unary call of method.
func unaryCall(ctx context.Context, method string, levels []grpcmw.Level, work handler, opts ...grpcmw.Option) error {
	intercept := grpcmw.UnaryStackInterceptor(levels, opts...)
	if len(levels) == 1 {
		intercept = grpcmw.UnaryServerInterceptor(levels[0].Limiter, levels[0].Key, opts...)
	}
	req := &pb.StreamingOutputCallRequest{ResponseStatus: named("alice")}
	_, err := intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: method},
		func(ctx context.Context, _ any) (any, error) { return nil, work(ctx) })
	return err
}

func nothing(context.Context) error { return nil }

// one is a single limit as levels.
func one(l *ratelimit.Limiter, key grpcmw.KeyFunc) []grpcmw.Level {
	return []grpcmw.Level{{Limiter: l, Key: key}}
}

// three are the namespaces of the levels of most tests.
var three = []sqllock.Namespace{"everybody", "tenant", "user"}

// levelsOf returns a level for alice with the Limiter of each of three.
func levelsOf(limiter func(i int, ns sqllock.Namespace) *ratelimit.Limiter) (levels []grpcmw.Level) {
	for i, ns := range three {
		levels = append(levels, grpcmw.Level{Limiter: limiter(i, ns), Key: constant("alice")})
	}
	return levels
}

// levelsWith returns levels over locks, of which the one at index at has the
// policy.
func levelsWith(locks sqllock.Locker, at int, policy ...ratelimit.Option) []grpcmw.Level {
	return levelsOf(func(i int, ns sqllock.Namespace) *ratelimit.Limiter {
		if i == at {
			return ratelimit.OneAtATime(locks, ns, policy...)
		}
		return ratelimit.OneAtATime(locks, ns)
	})
}

// A logbook is a log that a test reads.
type logbook struct{ httptesting.Logbook }

func (l *logbook) option() grpcmw.Option { return grpcmw.WithLogger(l.Logger()) }

// wantPlacesFree reports places of levels that are still taken.
func wantPlacesFree(t *testing.T, levels []grpcmw.Level) {
	t.Helper()
	for _, level := range levels {
		if n := level.Limiter.Stats().Active; n > 0 {
			t.Errorf("%d places of %s are left", n, level.Limiter.Namespace())
		}
	}
}

// wantLost checks that err is the status of a call that was interrupted because
// the lock of the limit ns was lost.
func wantLost(t *testing.T, err error, ns sqllock.Namespace) {
	t.Helper()
	if info := errorInfo(status.Convert(err)); info.GetReason() != "LOCK_LOST" || info.GetMetadata()["namespace"] != string(ns) {
		t.Errorf("%v with ErrorInfo %v, want LOCK_LOST of %s", err, info, ns)
	}
}
